"""The resource groups in which the sessions of a launch may start, and what can never be granted in each."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, Exists, Max, Min, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Coalesce

from accounts.models import User
from resources.amounts.capacity import Capacity, shortfalls
from resources.amounts.units import fgpu_text, listing, size_text, span_text
from resources.gpus.shares import device_memory_for, share_bytes
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
    return max(request.min_gpu_memory, request.image.min_gpu_memory) if request.most_fgpu else 0


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
    found |= _gpu_errors(group, request) or _capacity_errors(group, request)
    if planned.required_roots and (missing := mounts.missing_storage_text(group, request.mounts)):
        found["mounts"] = missing
    elif planned.required_roots and request.cluster and not found:
        suited = mounts.with_roots(_suited(group, request), planned.required_roots)
        if texts := list(_cluster_errors(group, request, suited).values()):
            found["mounts"] = f"Not all hosts have the storage of these folders. {texts[0]}"
    return found


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
        return {"fgpu": "No host of this group has a GPU."}
    best = max(memory for memory, _ in hosts)
    most = share_bytes(best, min(request.most_fgpu, group.gpu_capacity), group.gpu_capacity)
    gets = f"With {fgpu_text(request.most_fgpu)} fGPU a session gets at most {size_text(most)} on a GPU of this group"
    if request.min_gpu_memory >= least:
        return {"min_gpu_memory": f"{gets}."}
    return {"fgpu": f"{gets}; {request.image} needs {size_text(least)}."}


def _model_text(model: str, models: Sequence[str]) -> str:
    if not models:
        return f"No host of this group has GPUs of the model {model} alone."
    return f"No host of this group has GPUs of the model {model} alone; there is {listing(models)}."
