"""Form fields that take amounts as people write them: "8g" of memory, "0.5" fGPU."""

from collections.abc import Callable
from typing import Any, ClassVar

from django import forms
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import ValidationError
from django.db.models import QuerySet

from resources.images.catalog import reference_problem
from resources.models import Host, Image, Preset, ResourceGroup
from resources.units import MIB, bytes_from, fgpu_text, milli_fgpu_from, size_text

_UNITS = (("t", 2**40), ("g", 2**30), ("m", 2**20), ("k", 2**10))


class _AmountField(forms.IntegerField):
    """An integer that is written as text."""

    widget = AdminTextInputWidget
    read: Callable[[str], int]

    def to_python(self, value: Any) -> int | None:
        """Return the integer, or None for nothing; raises ValidationError with the sentence of `resources.units`."""
        if value in self.empty_values:
            return None
        try:
            return type(self).read(str(value))
        except ValueError as error:
            raise ValidationError(str(error)) from error


class SizeField(_AmountField):
    """Bytes written as "8g" or "512m"; a plain number is bytes."""

    read = staticmethod(bytes_from)

    def prepare_value(self, value: Any) -> Any:
        """Return an integer in the largest unit that shows it exactly; what was typed stays as it is."""
        if not isinstance(value, int):
            return value
        return next((f"{value // factor}{unit}" for unit, factor in _UNITS if value and not value % factor), str(value))


class FgpuField(_AmountField):
    """Milli-fGPU written as a decimal number of fGPU."""

    read = staticmethod(milli_fgpu_from)

    def prepare_value(self, value: Any) -> Any:
        """Return milli-fGPU as the decimal; what was typed stays as it is."""
        return fgpu_text(value) if isinstance(value, int) else value


class ResourceGroupForm(forms.ModelForm[ResourceGroup]):
    """A group whose unit stays as it is while sessions count in it; the database refuses that too."""

    class Meta:
        model = ResourceGroup
        fields = (
            *("name", "description", "fgpu_per_gpu", "host_loss_grace", "use_mps", "is_active", "open_to_all", "users"),
            *("placement", "queue_order", "ageing", "hold_after", "pending_timeout"),
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
