"""Forms of the administration of groups, hosts, presets, registries and images."""

import json
from datetime import timedelta
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import F, QuerySet
from django.forms.fields import InvalidJSONInput
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, ngettext

from resources.amounts.capacity import shared_memory_error
from resources.amounts.fields import SizeFormField
from resources.elastic.host_types import HostTypeSerializer
from resources.elastic.kinds import KINDS
from resources.hosts import health as host_health
from resources.hosts import kinds
from resources.models import ElasticPool, GpuWeight, Host, Image, Preset, Registry, ResourceGroup
from resources.registries.credentials import set_password
from resources.registries.references import reference_problem, registry_address_problem
from translation.english import from_english


class ResourceGroupForm(forms.ModelForm[ResourceGroup]):
    """A resource group; its fGPU per GPU cannot change while sessions hold leases, which the database enforces too."""

    class Meta:
        model = ResourceGroup
        fields = (
            *(
                "name",
                "description",
                "accelerator",
                "fgpu_per_gpu",
                "cpu_overcommit",
                "sharing",
                "host_loss_grace",
                "use_mps",
            ),
            *("is_active", "deny_private_networks", "cluster_host_network"),
            *(
                "open_to_all",
                "users",
                "projects",
                "allow_interactive",
                "allow_batch",
                "placement",
                "queue_order",
                "ageing",
                "half_life",
                "starvation_limit",
            ),
            *("reservation_delay", "start_allowance", "max_lifetime", "pending_timeout"),
            *("preemption_grace", "preemptible_charge_percent", "end_gpu_overuse"),
        )
        labels: ClassVar = {"fgpu_per_gpu": gettext_lazy("fGPU per GPU")}

    def clean_allow_batch(self) -> bool:
        """Return the value; raise ValidationError where the group would take no session at all."""
        allow_batch: bool = self.cleaned_data["allow_batch"]
        if not allow_batch and not self.cleaned_data.get("allow_interactive"):
            raise ValidationError(gettext("The group takes interactive sessions, batch sessions, or both."))
        return allow_batch

    def clean_max_lifetime(self) -> timedelta | None:
        """Return the value; raise ValidationError where sessions that run would end at once."""
        value: timedelta | None = self.cleaned_data["max_lifetime"]
        if "max_lifetime" in self.changed_data and value is not None and self.instance.pk:
            running = self.instance.sessions.filter(
                status="RUNNING", started_at__lt=timezone.now() - value - F("extension")
            )
            if count := running.count():
                text = ngettext(
                    "%(count)s session has run here for longer than that, and would end at once; end it first.",
                    "%(count)s sessions have run here for longer than that, and would end at once; end them first.",
                    count,
                )
                raise ValidationError(text % {"count": count})
        return value

    def clean_accelerator(self) -> str:
        """Return the kind; raise ValidationError on a change while hosts lend others, or sessions want some."""
        kind: str = self.cleaned_data["accelerator"]
        if "accelerator" not in self.changed_data or not self.instance.pk:
            return kind
        if host := kinds.lends_other(Host.objects.filter(group=self.instance.pk), kind):
            text = gettext("%(host)s lends devices of another kind here; put it into another group first.")
            raise ValidationError(text % {"host": host})
        if count := kinds.sessions_with_devices(self.instance).count():
            text = ngettext(
                "%(count)s session holds devices of this group or waits for some; end it first.",
                "%(count)s sessions hold devices of this group or wait for some; end them first.",
                count,
            )
            raise ValidationError(text % {"count": count})
        return kind

    def clean_fgpu_per_gpu(self) -> int:
        """Return the value; raise ValidationError on a change while sessions of the group hold leases."""
        value: int = self.cleaned_data["fgpu_per_gpu"]
        if "fgpu_per_gpu" in self.changed_data and _are_leased(Host.objects.filter(group=self.instance.pk)):
            raise ValidationError(
                gettext("This cannot change while sessions hold resources of the group; end them first.")
            )
        return value


class HostForm(forms.ModelForm[Host]):
    """The fields of a host that administrators decide; the host reports the others."""

    class Meta:
        model = Host
        fields = ("group", "topology", "is_cordoned", "cordon_reason")
        error_messages: ClassVar = {
            "topology": {
                "invalid": gettext_lazy("Use names of letters, digits and . - _ with / between them, eight at most.")
            }
        }

    def save(self, commit: bool = True) -> Host:
        """Save; a host that takes sessions again is not drained any more, and what the administrator says counts."""
        if "is_cordoned" in self.changed_data:
            host_health.forget(Host.objects.filter(pk=self.instance.pk))
        if not self.instance.is_cordoned:
            self.instance.cordon_reason, self.instance.drain_by = "", None
        return super().save(commit)

    def clean_group(self) -> ResourceGroup:
        """Return the group; raise ValidationError on a change while sessions hold leases on the host."""
        group: ResourceGroup = self.cleaned_data["group"]
        if "group" in self.changed_data and _are_leased(Host.objects.filter(pk=self.instance.pk)):
            raise ValidationError(
                gettext("A host cannot change its group while sessions hold its resources; end them first.")
            )
        if kinds.lends_other(Host.objects.filter(pk=self.instance.pk), group.accelerator):
            text = gettext("Hosts of this group lend %(kind)s, and this one lends other devices.")
            raise ValidationError(text % {"kind": group.accelerator})
        return group


class LinedJsonField(forms.JSONField):
    """JSON that people read and write: a line for each of the outermost values, in a monospaced font."""

    widget = forms.Textarea(attrs={"rows": 6, "spellcheck": "false", "class": "vLargeTextField json"})

    def to_python(self, value: Any) -> Any:
        """Return what the text says. Raises ValidationError, also where it is nested too deeply to be read."""
        try:
            return super().to_python(value)
        except RecursionError:
            raise ValidationError(self.error_messages["invalid"], code="invalid", params={"value": value}) from None

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Return what the form shows again of what was typed."""
        try:
            return super().bound_data(data, initial)
        except RecursionError:
            return InvalidJSONInput(data)

    def prepare_value(self, value: Any) -> Any:
        """Return a value as text; what was typed and is no JSON stays as it is."""
        if isinstance(value, InvalidJSONInput):
            return value
        if isinstance(value, dict):
            return _lines("{}", [f"{_json(name)}: {_json(each)}" for name, each in sorted(value.items())])
        return _lines("[]", [_json(each) for each in value]) if isinstance(value, list) else _json(value)


class HostTypesField(LinedJsonField):
    """Types of hosts, the memory of each as people write it."""

    def prepare_value(self, value: Any) -> Any:
        """Return the types as text."""
        if isinstance(value, list) and all(isinstance(row, dict) for row in value):
            names, read = ("memory", "gpu_memory"), SizeFormField().prepare_value
            value = [row | {name: read(row[name]) for name in names if row.get(name)} for row in value]
            order = {name: place for place, name in enumerate(HostTypeSerializer().fields)}  # a database has its own
            value = [dict(sorted(row.items(), key=lambda pair: order.get(pair[0], len(order)))) for row in value]
        return super().prepare_value(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lines(brackets: str, parts: list[str]) -> str:
    body = ",\n".join(f"  {part}" for part in parts)
    return f"{brackets[0]}\n{body}\n{brackets[1]}" if parts else brackets


class ElasticPoolForm(forms.ModelForm[ElasticPool]):
    """An elastic pool; the model checks what its provider and its types of hosts need."""

    provider = forms.ChoiceField(choices=lambda: [(name, name) for name in sorted(KINDS)])

    class Meta:
        model = ElasticPool
        fields = (
            *("group", "is_enabled", "provider", "configuration", "host_types", "min_hosts", "max_hosts"),
            *("hosts_per_hour", "cost_per_hour", "cool_down", "give_up_after", "back_off", "max_parked_time"),
        )
        field_classes: ClassVar = {"configuration": LinedJsonField, "host_types": HostTypesField}
        help_texts: ClassVar = {
            "host_types": gettext_lazy(
                "What the provider can make: name, cpus, memory such as 80g, gpu_count and cost_per_hour of each type; "
                "gpu_kind, gpu_model, gpu_memory, divides_gpus and architecture where they matter"
            )
        }


class PresetForm(forms.ModelForm[Preset]):
    """A preset, whose shared memory must fit into its memory."""

    class Meta:
        model = Preset
        fields = ("name", "group", "cpu", "memory", "shared_memory", "fgpu", "gpu_memory")

    def clean_gpu_memory(self) -> int:
        """Return the bytes; nothing is none."""
        return self.cleaned_data["gpu_memory"] or 0

    def clean_shared_memory(self) -> int:
        """Return the bytes; raise ValidationError if they exceed the memory or are below the minimum."""
        shared: int = self.cleaned_data["shared_memory"]
        if error := shared_memory_error(shared, self.cleaned_data.get("memory", shared)):
            raise ValidationError(from_english(error))
        return shared


class GpuWeightForm(forms.ModelForm[GpuWeight]):
    """The weight of a GPU model, whether or not a host reports it."""

    class Meta:
        model = GpuWeight
        fields = ("model", "weight")


class RegistryForm(forms.ModelForm[Registry]):
    """A registry; its password can be set, but never read."""

    password = forms.CharField(
        required=False,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=gettext_lazy("Stored encrypted and never shown. Leave it empty to keep the one that is stored."),
    )

    class Meta:
        model = Registry
        fields = ("name", "address", "username", "is_push_target", "allows_http")

    def clean_address(self) -> str:
        """Return the address as references begin with it; raise ValidationError if it is none."""
        address: str = self.cleaned_data["address"].strip().lower()
        if problem := registry_address_problem(address):
            raise ValidationError(f"{from_english(problem)}.")
        return address

    def clean_is_push_target(self) -> bool:
        """Return whether it is the push target; raise ValidationError if another registry is."""
        is_push_target: bool = self.cleaned_data["is_push_target"]
        if is_push_target and (
            other := Registry.objects.filter(is_push_target=True).exclude(pk=self.instance.pk).first()
        ):
            text = gettext("%(registry)s is the push target already; take the mark from it first.")
            raise ValidationError(text % {"registry": other})
        return is_push_target

    def clean(self) -> dict[str, Any]:
        """Return the cleaned data; refuse a password without a user name, and the other way round."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        username, password = cleaned.get("username"), cleaned.get("password")
        moved = {"address", "username"} & set(self.changed_data)
        if password and not username:
            self.add_error("username", gettext("A password needs a user name."))
        if username and not password and (moved or not self.instance.encrypted_password):
            self.add_error("password", gettext("Enter the password of this user at this registry."))
        return cleaned

    def save(self, commit: bool = True) -> Registry:
        """Store the password encrypted; one without a user name is removed."""
        if not self.cleaned_data["username"]:
            set_password(self.instance, "")
        elif self.cleaned_data["password"]:
            set_password(self.instance, self.cleaned_data["password"])
        return super().save(commit)


class ImageForm(forms.ModelForm[Image]):
    """An image with a valid reference, and at most one default per environment."""

    class Meta:
        model = Image
        fields = (
            *("environment", "version", "reference", "description", "is_enabled", "is_default", "owner"),
            *("min_cpu", "min_memory", "min_fgpu", "min_gpu_memory", "accelerators", "architecture"),
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Show no least GPU memory as an empty field."""
        super().__init__(*args, **kwargs)
        least = self.fields["min_gpu_memory"]
        least.required = False
        least.help_text = gettext("What a session gets on one GPU, such as 16g; empty: any")
        if not self.initial.get("min_gpu_memory"):
            self.initial["min_gpu_memory"] = None

    def clean_min_gpu_memory(self) -> int:
        """Return the bytes; 0 where nothing is demanded."""
        return self.cleaned_data["min_gpu_memory"] or 0

    def clean_reference(self) -> str:
        """Return the reference; raise ValidationError if it is malformed."""
        reference: str = self.cleaned_data["reference"]
        if problem := reference_problem(reference):
            raise ValidationError(f"{from_english(problem)}.")
        return reference

    def clean_is_default(self) -> bool:
        """Return whether it is the default; raise ValidationError if another version is."""
        is_default: bool = self.cleaned_data["is_default"]
        others = Image.objects.filter(environment=self.cleaned_data.get("environment"), is_default=True)
        if is_default and (other := others.exclude(pk=self.instance.pk).first()):
            text = gettext("%(image)s is already the default; make it no default first.")
            raise ValidationError(text % {"image": other})
        return is_default


def _are_leased(hosts: QuerySet[Host]) -> bool:
    """Return whether any session holds a lease on these hosts."""
    return hosts.filter(leases__isnull=False).exists()
