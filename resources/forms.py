"""Forms of the administration of groups, hosts, presets and images."""

from typing import ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import QuerySet

from resources.images.catalog import reference_problem
from resources.models import Host, Image, Preset, ResourceGroup
from resources.units import MIB, size_text


class ResourceGroupForm(forms.ModelForm[ResourceGroup]):
    """A group whose unit stays as it is while sessions count in it; the database refuses that too."""

    class Meta:
        model = ResourceGroup
        fields = (
            *("name", "description", "fgpu_per_gpu", "host_loss_grace", "use_mps", "is_active", "open_to_all", "users"),
            *("placement", "queue_order", "ageing", "reservation_delay", "pending_timeout"),
        )
        labels: ClassVar = {"fgpu_per_gpu": "fGPU per GPU"}

    def clean_fgpu_per_gpu(self) -> int:
        """Return the unit; raises ValidationError while sessions of the group hold leases."""
        unit: int = self.cleaned_data["fgpu_per_gpu"]
        if "fgpu_per_gpu" in self.changed_data and _are_leased(Host.objects.filter(group=self.instance.pk)):
            raise ValidationError("This cannot change while sessions hold resources of the group; end them first.")
        return unit


class HostForm(forms.ModelForm[Host]):
    """What an administrator decides about a host; all else it reports itself."""

    class Meta:
        model = Host
        fields = ("group", "is_cordoned")

    def clean_group(self) -> ResourceGroup:
        """Return the group; raises ValidationError for another one while sessions hold leases on the host."""
        group: ResourceGroup = self.cleaned_data["group"]
        if "group" in self.changed_data and _are_leased(Host.objects.filter(pk=self.instance.pk)):
            raise ValidationError("A host stays in its group while sessions hold resources of it; end them first.")
        return group


class PresetForm(forms.ModelForm[Preset]):
    """A preset that can be launched."""

    class Meta:
        model = Preset
        fields = ("name", "group", "cpu", "memory", "shared_memory", "fgpu")

    def clean_shared_memory(self) -> int:
        """Return the bytes; raises ValidationError for more than the memory, of which they are a part."""
        shared: int = self.cleaned_data["shared_memory"]
        memory = self.cleaned_data.get("memory")
        if memory is not None and shared > memory:
            raise ValidationError(f"Shared memory is part of the memory and cannot be above {size_text(memory)}.")
        if shared < MIB:
            raise ValidationError(f"Shared memory is at least {size_text(MIB)}.")
        return shared


class ImageForm(forms.ModelForm[Image]):
    """An image that an engine can find, and one default per environment at most."""

    class Meta:
        model = Image
        fields = (
            *("environment", "version", "reference", "description", "is_enabled", "is_default"),
            *("min_cpu", "min_memory", "min_fgpu"),
        )

    def clean_reference(self) -> str:
        """Return the reference; raises ValidationError for what no engine takes as one."""
        reference: str = self.cleaned_data["reference"]
        if problem := reference_problem(reference):
            raise ValidationError(f"{problem}.")
        return reference

    def clean_is_default(self) -> bool:
        """Return whether it is offered first; raises ValidationError while another version is."""
        is_default: bool = self.cleaned_data["is_default"]
        others = Image.objects.filter(environment=self.cleaned_data.get("environment"), is_default=True)
        if is_default and (other := others.exclude(pk=self.instance.pk).first()):
            raise ValidationError(f"{other} is the default already; take that from it first.")
        return is_default


def _are_leased(hosts: QuerySet[Host]) -> bool:
    """Return whether any session holds a lease on these hosts; leases are known here by their reverse relation."""
    return hosts.filter(leases__isnull=False).exists()
