"""The resource groups in which the sessions of a launch may start, and what can never be granted in each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, Exists, Max, Min, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Coalesce

from accounts.models import User
from resources.amounts.capacity import Capacity, shortfalls
from resources.amounts.units import fgpu_text, listing, size_text, span_text
from resources.gpus.shares import device_memory_for, share_bytes
from resources.hosts import kinds
from resources.hosts.gpu_kinds import GpuKind, gpu_kinds
from resources.models import Gpu, Host, ResourceGroup
from resources.totals import possible_hosts
from sessions.launching import clusters, mounts
from sessions.launching.mounts import MountPlan
from sessions.launching.requests import LaunchRequest
from sessions.lifecycle import Kind, Status
from sessions.limits import policy_checks
from sessions.models import Session, group_waits
from sessions.models.group_waits import GroupWait

DEVICES = Count("gpus", filter=Q(gpus__is_present=True))
MAX_GROUPS = 20  # that a launch names


def groups_of(owner: User, request: LaunchRequest, planned: MountPlan) -> list[ResourceGroup]:
    """Return the groups in which the sessions may start, the preferred first.

    Where any group will do, these are the ones that the owner may use now and in which all that is asked for can be
    granted; if that is none, the preferred one alone, of which `errors` says why. Named groups are returned as named.
    """
    if not request.is_any_group:
        return list(dict.fromkeys((request.resource_group, *request.other_groups)))
    usable = list(ResourceGroup.objects.usable_for(owner, request.project).order_by("name"))
    usable.sort(key=lambda group: group != request.resource_group)
    fitting = [group for group in usable if not _errors_in(owner, group, request, planned)]
    return fitting or [request.resource_group]


def errors(owner: User, request: LaunchRequest, planned: MountPlan) -> dict[str, str]:
    """Return {field: message} for what a group can never grant, whatever else runs or waits there."""
    groups = groups_of(owner, request, planned)
    if len(groups) > MAX_GROUPS:
        return {"resource_groups": f"A launch names at most {MAX_GROUPS} resource groups."}
    found: dict[str, str] = {}
    for group in groups:
        refused = _errors_in(owner, group, request, planned)
        found |= refused if group == groups[0] else _of_other(group, refused, found)
    return found


def min_gpu_memory_of(request: LaunchRequest) -> int:
    """Return the least memory, in bytes, that a session must get on one GPU, by its request and its image."""
    least = max(request.gpu_memory, request.min_gpu_memory, request.image.min_gpu_memory)
    return least if request.most_fgpu else 0


def by_share(group: ResourceGroup, request: LaunchRequest) -> list[LaunchRequest]:
    """Return a request by GPU memory as what it is on each kind of GPUs of the group, the least share first.

    None where it fits no GPU. Any other request is returned as it is.
    """
    if not request.gpu_memory:
        return [request]
    capacity, least = group.gpu_capacity, max(request.fgpu, request.image.min_fgpu)
    return [
        replace(request, fgpu=fgpu, gpu_memory=0, min_gpu_memory=max(request.min_gpu_memory, request.gpu_memory))
        for fgpu in sorted({max(least, kind.share_of(request.gpu_memory, capacity)) for kind in _kinds(group, request)})
    ]


def least_share(groups: Iterable[ResourceGroup], request: LaunchRequest) -> LaunchRequest:
    """Return a request by GPU memory as one for the least that it can be granted in one of these groups."""
    found = [each for group in groups for each in by_share(group, request)]
    unknown = replace(request, fgpu=max(1, request.fgpu, request.image.min_fgpu), gpu_memory=0)
    return min(found, key=attrgetter("fgpu"), default=unknown)


def _kinds(group: ResourceGroup, request: LaunchRequest) -> list[GpuKind]:
    """Return the kinds of GPUs of a group, of the model asked for, of which one has the memory asked for."""
    return [
        kind for kind in gpu_kinds(group) if kind.memory >= request.gpu_memory and request.gpu_model in ("", kind.model)
    ]


def _memory_errors(group: ResourceGroup, request: LaunchRequest) -> dict[str, str]:
    """Return {field: message} where no GPU of the group has the memory asked for, or not with all else."""
    if max(request.fgpu, request.image.min_fgpu) > group.gpu_capacity:
        most = fgpu_text(group.gpu_capacity)
        return {"fgpu": f"GPU memory is of one GPU, of which the least part is {most} fGPU at most."}
    errors = [_gpu_errors(group, each) or _capacity_errors(group, each) for each in by_share(group, request)]
    if errors:
        return (
            {} if {} in errors else {"gpu_memory" if name == "fgpu" else name: text for name, text in errors[0].items()}
        )
    models = sorted({kind.model for kind in gpu_kinds(group)})
    if request.gpu_model and models and request.gpu_model not in models:
        return {"gpu_model": _model_text(request.gpu_model, list(filter(None, models)))}
    sizes = [kind.memory for kind in gpu_kinds(group) if request.gpu_model in ("", kind.model)]
    if not sizes:
        return {"gpu_memory": f"No host of this group has any {group.accelerator_name}."}
    name, largest = group.accelerator_name, size_text(max(sizes))
    return {"gpu_memory": f"The largest {name} of this group has {largest}; a session gets it of one device."}


def waits_on_page(session: Session) -> list[tuple[str, GroupWait]]:
    """Return why a session waits in each of several groups, by the group's name; [] for others. At most one query."""
    if session.status != Status.PENDING or not session.group_choices:
        return []
    names = ResourceGroup.objects.filter(pk__in=session.group_choices).values_list("pk", "name")
    return group_waits.by_name(session.group_waits, session.group_choices, dict(names))


def _of_other(group: ResourceGroup, refused: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """Return the messages of a group that is not the preferred one, which name it."""
    fields = {field: "resource_groups" if field == "resource_group" else field for field in refused}
    return {fields[field]: f"In {group}: {message}" for field, message in refused.items() if fields[field] not in known}


def _errors_in(owner: User, group: ResourceGroup, request: LaunchRequest, planned: MountPlan) -> dict[str, str]:
    """Return {field: message} for what the group does not admit, and what no host of it has even when empty."""
    found = policy_checks.group_errors(owner, group, request.project, is_batch=request.kind == Kind.BATCH)
    if "resource_group" in found:
        return found
    if request.time_limit and group.max_lifetime and request.time_limit > group.max_lifetime:
        found["time_limit"] = f"The resource group {group} ends sessions after {span_text(group.max_lifetime)}."
    found |= _kind_errors(group, request)
    if request.gpu_memory:
        found |= _memory_errors(group, request)
        request = next(iter(by_share(group, request)), request)
    else:
        found |= _gpu_errors(group, request) or _capacity_errors(group, request)
    if planned.required_roots and (missing := mounts.missing_storage_text(group, request.mounts)):
        found["mounts"] = missing
    elif planned.required_roots and request.cluster and not found:
        suited = mounts.with_roots(_suited(group, request), planned.required_roots)
        if texts := list(_cluster_errors(group, request, suited).values()):
            found["mounts"] = f"Not all hosts have the storage of these folders. {texts[0]}"
    return found


def _kind_errors(group: ResourceGroup, request: LaunchRequest) -> dict[str, str]:
    """Return {field: message} where the kind of the group's devices does not suit the image, or a part of one."""
    main = kinds.part_refusal(group, request.main.fgpu) if request.main else {}
    found = {f"cluster_main_{name}": text for name, text in main.items()}
    return (
        found | kinds.part_refusal(group, request.fgpu) | kinds.image_refusal(group, request.most_fgpu, request.image)
    )


def _capacity_errors(group: ResourceGroup, request: LaunchRequest) -> dict[str, str]:
    """Return {field: message} for amounts that no host of the group has whose GPUs are as asked for."""
    hosts = _suited(group, request)
    capacities = [
        Capacity(cpu=cpu, memory=memory, gpu_count=count, gpu_capacity=group.gpu_capacity)
        for cpu, memory, count in set(hosts.annotate(devices=DEVICES).values_list("cpu", "memory", "devices"))
    ]
    capacities += [
        Capacity(cpu=row["cpus"], memory=row["memory"], gpu_count=row["gpu_count"], gpu_capacity=group.gpu_capacity)
        for row in _possible(group, request)
    ]
    if not capacities:
        return {"resource_group": "No host has joined this resource group yet."}
    short = shortfalls(capacities, cpu=request.cpu, memory=request.memory, fgpu=request.fgpu)
    return short or _cluster_errors(group, request, hosts)


def _cluster_errors(group: ResourceGroup, request: LaunchRequest, hosts: QuerySet[Host]) -> dict[str, str]:
    """Return {field: message} where these hosts, even when empty, cannot take all members; {} without a cluster."""
    if request.cluster is None:
        return {}
    models = Coalesce(ArrayAgg("gpus__name", filter=Q(gpus__is_present=True), distinct=True), Value([]))
    hosts = hosts.annotate(devices=DEVICES, models=models)
    sizes = [
        clusters.HostSize(cpu, memory, count, names[0] if len(names) == 1 else "")
        for cpu, memory, count, names in hosts.values_list("cpu", "memory", "devices", "models")
    ]
    sizes += [
        clusters.HostSize(row["cpus"], row["memory"], row["gpu_count"], row["gpu_model"])
        for row in _possible(group, request, request.members)
    ]
    return clusters.fit_errors(request, sizes, group.gpu_capacity, group.core_milli)


def _suited(group: ResourceGroup, request: LaunchRequest) -> QuerySet[Host]:
    """Return the hosts of the group of which every GPU is of the model and size that the request asks for."""
    hosts = Host.objects.filter(group=group).order_by()
    wrong = Q()
    if request.gpu_model:
        wrong |= ~Q(name=request.gpu_model)
    if least := min_gpu_memory_of(request):
        wrong |= Q(memory__lt=device_memory_for(least, request.most_fgpu, group.gpu_capacity))
    if not wrong:
        return hosts
    present = Gpu.objects.filter(host=OuterRef("pk"), is_present=True)
    return hosts.filter(Exists(present) & ~Exists(present.filter(wrong)))


def _possible(group: ResourceGroup, request: LaunchRequest, most: int = 1) -> list[dict[str, Any]]:
    """Return the hosts that could be made for the group, so many of each type, whose GPUs are as asked for."""
    least = min_gpu_memory_of(request)
    memory = device_memory_for(least, request.most_fgpu, group.gpu_capacity) if least else 0
    return [
        row
        for row in possible_hosts(group, most)
        if request.gpu_model in ("", row["gpu_model"]) and (row["gpu_memory"] or 0) >= memory
    ]


def _gpu_errors(group: ResourceGroup, request: LaunchRequest) -> dict[str, str]:
    """Return {field: message} if no host of the group has the GPUs that the request asks for, whatever their number."""
    least = min_gpu_memory_of(request)
    if not (request.gpu_model or least) or _suited(group, request).exists():
        return {}
    if _possible(group, request):
        return {}
    devices = Gpu.objects.filter(host__group=group, is_present=True).order_by()
    by_host = devices.values("host").annotate(least=Min("memory"), first=Min("name"), last=Max("name"))
    hosts = [(row["least"], row["first"]) for row in by_host if row["first"] == row["last"] or not request.gpu_model]
    if request.gpu_model:
        models = sorted({model for _, model in hosts})
        if request.gpu_model not in models:
            return {"gpu_model": _model_text(request.gpu_model, models)}
        hosts = [(memory, model) for memory, model in hosts if model == request.gpu_model]
    if not hosts:
        return {"fgpu": f"No host of this group has any {group.accelerator_name}."}
    best = max(memory for memory, _ in hosts)
    most = share_bytes(best, min(request.most_fgpu, group.gpu_capacity), group.gpu_capacity)
    share, name = fgpu_text(request.most_fgpu), group.accelerator_name
    gets = f"With {share} fGPU a session gets at most {size_text(most)} on one {name} of this group"
    if request.min_gpu_memory >= least:
        return {"min_gpu_memory": f"{gets}."}
    return {"fgpu": f"{gets}; {request.image} needs {size_text(least)}."}


def _model_text(model: str, models: Sequence[str]) -> str:
    if not models:
        return f"No host of this group has GPUs of the model {model} alone."
    return f"No host of this group has GPUs of the model {model} alone; there is {listing(models)}."
