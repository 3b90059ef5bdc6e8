"""Plain makers of test rows: one object each, valid by default; keyword arguments replace any field."""

import itertools
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from accounts.models import Membership, Project, ProjectRole, ResourcePolicy, User
from folders.models import Folder, HostRoot, StorageRoot
from resources.amounts.units import GIB, MIB
from resources.models import App, Gpu, Host, HostStatus, Image, Preset, ResourceGroup
from sessions.launching import networks
from sessions.lifecycle import Kind, Reason, Status
from sessions.models import Cluster, ClusterMode, Endpoint, EndpointState, GpuShare, Lease, Session, new_session_id
from sessions.parking import services as parking

PASSWORD = "a long enough password"

_numbers = itertools.count(1)


def make_policy(**overrides: Any) -> ResourcePolicy:
    """Return a policy without limits."""
    return ResourcePolicy.objects.create(**{"name": f"policy-{next(_numbers)}"} | overrides)


def make_user(**overrides: Any) -> User:
    """Return a user without limits whose password is PASSWORD; `is_superuser=True` makes a superadmin."""
    fields = {"email": f"user{next(_numbers)}@example.org", "password": PASSWORD} | overrides
    fields.setdefault("is_staff", fields.get("is_superuser", False))
    if "policy" not in fields:
        fields["policy"] = make_policy()
    return User.objects.create_user(**fields)


def make_project(*members: User, managers: Iterable[User] = (), **overrides: Any) -> Project:
    """Return an active project without limits of its own."""
    project = Project.objects.create(**{"name": f"project-{next(_numbers)}"} | overrides)
    roles = [(user, ProjectRole.MEMBER) for user in members] + [(user, ProjectRole.MANAGER) for user in managers]
    Membership.objects.bulk_create(Membership(project=project, user=user, role=role.value) for user, role in roles)
    return project


def owner_of(folder: Folder) -> User:
    """Return the owner of a folder that is no project's."""
    assert folder.owner is not None
    return folder.owner


def make_group(**overrides: Any) -> ResourceGroup:
    """Return an active group that everybody may use, with 2 fGPU per GPU."""
    fields = {"name": f"group-{next(_numbers)}", "fgpu_per_gpu": 2, "open_to_all": True}
    return ResourceGroup.objects.create(**fields | overrides)


def make_host(*, gpus: int = 0, **overrides: Any) -> Host:
    """Return a READY host of 16 cores and 64 GiB with `gpus` simulated devices of 8 GiB."""
    fields: dict[str, Any] = {"name": f"host-{next(_numbers)}", "status": HostStatus.READY.value, "cpu": 16}
    fields |= {"memory": 64 * GIB, "cluster_address": "10.0.0.1"} | overrides
    if "group" not in fields:
        fields["group"] = make_group()
    host = Host.objects.create(**fields)
    for index in range(gpus):
        make_gpu(host=host, index=index)
    return host


def make_gpu(**overrides: Any) -> Gpu:
    """Return a simulated device of 8 GiB; `host` is made unless given."""
    number = next(_numbers)
    fields = {"uuid": f"SIM-{number:08d}", "index": 0, "name": "Simulated GPU", "memory": 8 * GIB, "is_simulated": True}
    fields |= overrides
    if "host" not in fields:
        fields["host"] = make_host()
    return Gpu.objects.create(**fields)


def make_preset(**overrides: Any) -> Preset:
    """Return a preset that is offered in all groups."""
    fields = {"name": f"preset-{next(_numbers)}", "cpu": 1, "memory": GIB, "shared_memory": 64 * MIB, "fgpu": 500}
    return Preset.objects.create(**fields | overrides)


def make_image(**overrides: Any) -> Image:
    """Return an enabled image with the least of minimum resources."""
    number = next(_numbers)
    fields = {"environment": "Python", "version": f"3.{number}", "reference": f"example/python:3.{number}"}
    return Image.objects.create(**fields | overrides)


def make_session(**overrides: Any) -> Session:
    """Return a PENDING session of 1 core, 1 GiB and no GPU; owner, image and group are made unless given."""
    fields = {"name": f"session-{next(_numbers)}", "cpu": 1, "memory": GIB, "shared_memory": 64 * MIB} | overrides
    for name, make in (("owner", make_user), ("image", make_image), ("resource_group", make_group)):
        if name not in fields:
            fields[name] = make()
    return Session.objects.create(**fields)


def make_cluster(
    size: int = 3,
    *,
    max_size: int | None = None,
    runs_on_all: bool = False,
    mode: ClusterMode = ClusterMode.ANY,
    **overrides: Any,
) -> list[Session]:
    """Return the PENDING members of a cluster by rank, the elastic ones too; fields of sessions may be given."""
    head = make_session(**overrides)
    cluster = Cluster.objects.create(id=head.pk, size=size, max_size=max_size, runs_on_all=runs_on_all, mode=mode.value)
    members = [head]
    for rank in range(cluster.most):
        member = head if rank == 0 else copy(head)
        if rank:
            member.pk, member.rank, member._state.adding = new_session_id(), rank, True
            member.is_elastic = rank >= size
            member.is_preemptible |= member.is_elastic
            if not runs_on_all:
                member.kind, member.command = Kind.INTERACTIVE.value, ""
            members.append(member)
        member.cluster = cluster
        member.save()
    return members


def run_cluster(size: int = 3, *, hosts: Sequence[Host] = (), **overrides: Any) -> list[Session]:
    """Return the RUNNING members of a cluster, placed at one moment: on these hosts in turn, else each on its own."""
    group = {"resource_group": hosts[0].group} if hosts else {}
    members = make_cluster(size, **group | overrides)
    start_by = timezone.now() + members[0].resource_group.start_allowance
    for number, member in enumerate(members):
        Session.objects.filter(pk=member.pk).update(start_by=start_by)
        run_session(member, host=hosts[number % len(hosts)] if hosts else None)
    return members


def run_session(session: Session | None = None, *, host: Host | None = None, **overrides: Any) -> Session:
    """Return the session RUNNING with its lease: on `host`, else on one of its group with just enough devices."""
    if session is None:
        group = {"resource_group": host.group} if host else {}
        session = make_session(**group | overrides)
    with transaction.atomic():
        lease_session(session, host)
        session.move_to(Status.PREPARING, Reason.CLAIMED)
        number = next(_numbers)
        fields = {"container_id": f"container-{session.pk}", "address": f"10.9.{number // 256 % 256}.{number % 256}"}
        session.move_to(Status.RUNNING, Reason.STARTED, fields=fields)
    session.refresh_from_db()
    return session


def scheduled_cluster(*hosts: Host, **overrides: Any) -> list[Session]:
    """Return the members, by rank, of a cluster that is placed with one on each of these hosts of one group."""
    with transaction.atomic():
        members = make_cluster(len(hosts), **{"resource_group": hosts[0].group} | overrides)
        for member, host in zip(members, hosts, strict=True):
            lease_session(member, host)
        networks.place([members[0].pk])
    return list(Session.objects.filter(cluster=members[0].pk).select_related("cluster").order_by("rank"))


def parked_session(**overrides: Any) -> Session:
    """Return a PARKED session, as its host leaves it."""
    session = run_session(**overrides)
    parking.park(session, actor=session.owner)
    session.move_to(Status.PARKED, Reason.PARKED)
    return session


def make_app(image: Image, **overrides: Any) -> App:
    """Return an app of the image: Jupyter on port 8888, started by a command, with a token."""
    fields = {"name": "jupyter", "title": "Jupyter", "port": 8888, "command": "run", "token_variable": "TOKEN"}
    return App.objects.create(image=image, **fields | overrides)


def run_reachable_session(**overrides: Any) -> Session:
    """Return a session RUNNING on this very host, so that no gateway is between."""
    host = Host.objects.filter(name=settings.COMPUTE_HOST_NAME).first()
    return run_session(host=host or make_host(name=settings.COMPUTE_HOST_NAME), **overrides)


def make_endpoint(session: Session | None = None, **overrides: Any) -> Endpoint:
    """Return a READY endpoint for the port 8080 of a session, one that can be reached unless it is given."""
    fields = {"app": "p8080", "title": "Port 8080", "port": 8080, "state": EndpointState.READY.value} | overrides
    return Endpoint.objects.create(session=session or run_reachable_session(), **fields)


def _hold_gpus(lease: Lease, fgpu: int, capacity: int) -> None:
    """Take whole devices first, then the remainder on the first device with room for it."""
    for gpu in Gpu.objects.filter(host=lease.host).annotate(held=Sum("shares__milli", default=0)).order_by("index"):
        part = min(fgpu, capacity)
        if part and gpu.held + part <= capacity:
            GpuShare.objects.create(lease=lease, gpu=gpu, milli=part)
            fgpu -= part
    if fgpu:
        raise ValueError(f"{lease.host} has no room for another {fgpu} milli-fGPU")


_WAY: Final = {
    Status.SCHEDULED: (),
    Status.PREPARING: ((Status.PREPARING, Reason.CLAIMED),),
    Status.RUNNING: ((Status.PREPARING, Reason.CLAIMED), (Status.RUNNING, Reason.STARTED)),
    Status.TERMINATING: ((Status.PREPARING, Reason.CLAIMED), (Status.TERMINATING, Reason.USER_REQUEST)),
    Status.TERMINATED: (
        (Status.PREPARING, Reason.CLAIMED),
        (Status.TERMINATING, Reason.USER_REQUEST),
        (Status.TERMINATED, Reason.USER_REQUEST),
    ),
    Status.PARKED: ((Status.PREPARING, Reason.CLAIMED), (Status.TERMINATING, Reason.PARKED)),
    Status.ERROR: ((Status.PREPARING, Reason.CLAIMED), (Status.ERROR, Reason.START_FAILED)),
}


def session_in(status: Status, *, host: Host | None = None, **overrides: Any) -> Session:
    """Return a session that came to `status` on a legal way: on `host`, else on one made for it."""
    group = {"resource_group": host.group} if host else {}
    return moved_to(status, make_session(**group | overrides), host)


def moved_to(status: Status, session: Session, host: Host | None = None) -> Session:
    """Return the PENDING session in this status, as `session_in`."""
    if status == Status.CANCELLED:
        session.move_to(Status.CANCELLED, Reason.USER_REQUEST)
    if status in _WAY:
        with transaction.atomic():
            lease_session(session, host)
        for step, reason in _WAY[status]:
            session.move_to(step, reason)
    if status == Status.PARKED:
        session.move_to(status, Reason.PARKED, fields={"parked_on_id": session.host_id, "parked_attempt": 1})
    session.refresh_from_db()
    return session


def lease_session(session: Session, host: Host | None = None) -> None:
    """Move the PENDING session to SCHEDULED with its lease: on `host`, else on one with just enough devices."""
    capacity = session.resource_group.gpu_capacity
    host = host or make_host(group=session.resource_group, gpus=-(-session.fgpu // capacity))
    core_milli = session.resource_group.core_milli
    amounts = {"cpu": session.cpu, "core_milli": core_milli, "memory": session.memory}
    lease = Lease.objects.create(session=session, host=host, **amounts)
    _hold_gpus(lease, session.fgpu, capacity)
    fields = {"host_id": host.pk, "attempt": session.attempt + 1, "core_milli": core_milli}
    session.move_to(Status.SCHEDULED, Reason.ASSIGNED, fields=fields)


def make_root(*hosts: Host, **overrides: Any) -> StorageRoot:
    """Return a storage root that is present on `hosts`; nothing lies at its path unless it is given."""
    number = next(_numbers)
    root = StorageRoot.objects.create(**{"name": f"root-{number}", "path": f"/nowhere/root-{number}"} | overrides)
    for host in hosts:
        HostRoot.objects.create(host=host, root=root, is_present=True)
    return root


def make_folder(owner: User | None = None, **overrides: Any) -> Folder:
    """Return the row of a folder, without a directory; owner, unless a project is given, and root are made."""
    fields: dict[str, Any] = {"name": f"folder-{next(_numbers)}"} | overrides
    if "project" not in fields:
        fields["owner"] = owner or make_user()
    if "root" not in fields:
        fields["root"] = make_root()
    return Folder.objects.create(**fields)
