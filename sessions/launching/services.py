"""Operations on sessions for pages, API and scheduler: submit, assign, terminate. One transaction each."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from django.db import DataError, IntegrityError, InternalError, connection, transaction

from accounts import audit
from accounts.limits import Amounts
from accounts.models import Project, User
from accounts.policies import bounds_of
from resources import clock
from resources.amounts.units import amount_text
from resources.kick import kick_scheduler
from resources.models import ResourceGroup
from sessions import notes, notify
from sessions.errors import RejectedError
from sessions.launching import clusters, dependencies, group_choice, image_choice, mounts, networks, validation
from sessions.launching.mounts import MountPlan
from sessions.launching.names import random_name
from sessions.launching.requests import LaunchRequest as LaunchRequest
from sessions.lifecycle import FINAL, LIVE, Reason, Status
from sessions.limits import policy_checks
from sessions.models import Dependency, Mount, Placed, Session, SessionEvent, StaleSessionError, schedule
from sessions.requeueing import preemption

logger = logging.getLogger(__name__)

_ENDS: Final = {  # where a session ends that has no container
    Status.PENDING: Status.CANCELLED,
    Status.SCHEDULED: Status.CANCELLED,
    Status.PARKED: Status.TERMINATED,
}

REFUSALS: Final = (
    IntegrityError,
    DataError,
    InternalError,
)  # what the database says of a write that it will never take


def submit(owner: User, request: LaunchRequest) -> list[Session]:
    """Queue the sessions of `request` and return them in queue order, of each cluster its first member.

    Raises RejectedError with a message per field of LaunchRequest (`GENERAL` for none); nothing is written then.
    """
    planned = mounts.plan(owner, request.mounts)
    _check_request(owner, request, planned)
    with transaction.atomic():
        # Serializes names and the pending limit per user; no_key, so that rows that only refer to the user do not wait.
        User.objects.select_for_update(no_key=True).get(pk=owner.pk)
        if request.project is not None:  # the same for the pending limit of the project
            Project.objects.select_for_update(no_key=True, of=("self",)).get(pk=request.project.pk)
        names = _names(owner, request)
        policy_checks.check_pending(owner, request.project, request.count * request.members)
        if planned.mounts and not mounts.lock_folders(planned):
            raise RejectedError({"mounts": "A folder was just deleted or withdrawn; choose again."})
        request = replace(request, image=image_choice.stored(request.image))
        now = clock.now()
        groups = group_choice.groups_of(owner, request, planned)
        granted = group_choice.least_share(groups, request) if request.gpu_memory else request
        rows = sessions = list(_rows(owner, request, granted.fgpu, names, now, planned, groups))
        if request.cluster:
            rows = clusters.create(granted, sessions)
        Session.objects.bulk_create(rows)
        if planned.mounts:
            Mount.objects.bulk_create(planned.rows(rows))
        Dependency.objects.bulk_create(dependencies.rows(sessions, request.depends_on))
        SessionEvent.objects.bulk_create(
            SessionEvent(
                session=session, at=now, new_status=Status.PENDING.value, reason=Reason.SUBMITTED.value, actor=owner
            )
            for session in rows
        )
        kick_scheduler()
        notify.sessions_changed((session.pk, owner.pk, session.project_id) for session in sessions)
    return sessions


def check(owner: User, request: LaunchRequest) -> MountPlan:
    """Raise RejectedError if `submit` would do so now, else return what the sessions would mount; write nothing."""
    planned = mounts.plan(owner, request.mounts)
    _check_request(owner, request, planned)
    _names(owner, request)
    policy_checks.check_pending(owner, request.project, request.count * request.members)
    return planned


@audit.recorded_for_others("end")
def terminate(session: Session, *, actor: User) -> None:
    """End the session: cancel a waiting one, stop a started one on its host. Does nothing once it has ended.

    The other members of a cluster end with it; if it has ended before them, with the first that goes on.
    """
    reason = Reason.USER_REQUEST if actor == session.owner else Reason.ADMIN_REQUEST
    for member in [session] if not session.is_final else session.members.live().select_related("host")[:1]:
        end(member, reason, f"Ended by {actor}.", actor=actor)


def end(session: Session, reason: Reason, detail: str, *, actor: User | None = None) -> None:
    """End the session for `reason`, whatever its state is by now; do nothing if it is ending or has ended.

    One that is being stopped to return to the queue does not return then, nor is one parked.
    """
    if session.status == Status.TERMINATING and session.reason in preemption.RETURNING:
        preemption.end_for_good(session, reason, detail, actor=actor)
    while session.status not in FINAL:
        if session.status == Status.TERMINATING:
            if not session.is_parking or _end_parking(session, reason, detail, actor):
                return
            continue
        target = _ENDS.get(Status(session.status), Status.TERMINATING)
        try:
            with transaction.atomic():
                session.move_to(target, reason, detail, actor=actor)
                if target == Status.TERMINATING and session.host is not None:
                    notify.send_to_host(session.host.name, "stop_session", session.pk, session.attempt)
                else:
                    kick_scheduler()
        except StaleSessionError:
            session.refresh_from_db()


def _end_parking(session: Session, reason: Reason, detail: str, actor: User | None) -> bool:
    """Let a session that is being parked end instead; return False where its state has changed, which is read then."""
    changes = {"is_parking": False, "reason": reason.value, "detail": detail}
    with transaction.atomic():
        being_parked = Session.objects.filter(pk=session.pk, status=Status.TERMINATING, is_parking=True)
        if has_changed := bool(being_parked.update(**changes)):
            notes.note(session, reason, detail, actor=actor)
    session.refresh_from_db()
    return has_changed


@audit.recorded_for_others("rename")
def rename(session: Session, name: str, *, actor: User) -> None:
    """Give the session, or all members of its cluster, another name; what runs goes on, under the host name it has.

    Raises RejectedError for a name that is not valid, or that another live session of the owner has.
    """
    if error := validation.name_error(name):
        raise RejectedError({"name": error})
    if name == session.name:
        return
    old = session.name
    try:
        with transaction.atomic():
            session.members.update(name=name)
            notes.note(session.main, Reason.RENAMED, f"Renamed from {old} to {name}.", actor=actor)
    except IntegrityError:
        raise RejectedError({"name": f"There is a session called {name} already; choose another name."}) from None
    session.name = name


@audit.recorded_for_others("force end")
def force_end(session: Session, *, actor: User) -> None:
    """End the session at once and free its lease without waiting for its host, which removes the container later.

    For hosts that will not return before their group's grace period ends. Ends all members of a cluster. Does nothing
    once the session has ended.
    """
    for member in session.members.select_related("host"):
        end(member, Reason.ADMIN_REQUEST, f"Ended by {actor}.", actor=actor)
        if member.status == Status.TERMINATING:
            detail = f"Forced by {actor}; its host did not respond."
            try:
                with transaction.atomic():
                    member.move_to(Status.TERMINATED, Reason.ADMIN_REQUEST, detail, actor=actor)
                    kick_scheduler()
            except StaleSessionError:  # its host ended it first
                logger.info("session %s: ended before that was forced", member.pk)
    session.refresh_from_db()


def assign(placements: Sequence[Placed], at: datetime | None = None) -> int:
    """Write the leases of `placements` and notify the hosts; return how many sessions were scheduled. One query.

    `at` is the time of the decision, on which the latest ends that it was planned with rest; by default now.

    Sessions that are no longer PENDING are skipped. Call it in the transaction that read the snapshot and holds the
    scheduler's lock: capacity is then as planned, and the database refuses anything beyond it.
    """
    scheduled = schedule(placements, at or clock.now())
    networks.place({row.cluster_id for row in scheduled if row.cluster_id})
    notify.send_to_hosts("start_session", [(row.host_name, row.id, row.attempt) for row in scheduled])
    if any(row.is_in_several for row in scheduled):
        kick_scheduler()
    return len(scheduled)


def assign_each(placements: Sequence[Placed], at: datetime) -> tuple[int, dict[str, str]]:
    """As `assign`, but leave out what the database refuses; return that as well, {session id: why}.

    Halves of what is refused are tried apart, so that few refusals among many cost few statements. The members of a
    cluster stay together: refused is its first.
    """
    ids = [placed.session_id for placed in placements]
    cluster_of = dict(Session.objects.filter(pk__in=ids, cluster__isnull=False).values_list("pk", "cluster"))
    wholes: dict[str, list[Placed]] = {}
    for placed in placements:
        wholes.setdefault(cluster_of.get(placed.session_id) or placed.session_id, []).append(placed)
    return _assign_wholes(list(wholes.items()), at)


def _assign_wholes(wholes: Sequence[tuple[str, Sequence[Placed]]], at: datetime) -> tuple[int, dict[str, str]]:
    """As `assign_each`, of placements by the session that they start."""
    if not wholes:
        return 0, {}
    try:
        with transaction.atomic():
            count = assign([placed for _, placements in wholes for placed in placements], at)
            with connection.cursor() as cursor:
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # what the commit would check
                cursor.execute("SET CONSTRAINTS ALL DEFERRED")
            return count, {}
    except REFUSALS as error:
        if len(wholes) == 1:
            return 0, {wholes[0][0]: str(error).splitlines()[0]}
    middle = len(wholes) // 2
    first, refused = _assign_wholes(wholes[:middle], at)
    second, more = _assign_wholes(wholes[middle:], at)
    return first + second, refused | more


def set_aside(refused: Mapping[str, str], until: datetime) -> None:
    """Leave these sessions, whose placement the database refused, out of the queue until then, and note it."""
    for session in Session.objects.filter(pk__in=refused, status=Status.PENDING):
        logger.error("session %s: the database refused its placement: %s", session.pk, refused[session.pk])
        Session.objects.filter(pk=session.pk, status=Status.PENDING).update(refused_until=until)
        notes.note(session, Reason.PLACEMENT_REFUSED, "", at_most_every=timedelta(hours=1))


def problems(owner: User, request: LaunchRequest, planned: MountPlan | None = None) -> dict[str, str]:
    """Return {field: message} for what can never be granted, whatever else runs or waits; one message per field."""
    if error := policy_checks.project_error(owner, request.project):
        return {"project": error}
    planned = planned or mounts.plan(owner, request.mounts)
    refused = group_choice.errors(owner, request, planned)
    if "resource_group" not in refused:
        groups = group_choice.groups_of(owner, request, planned) if request.gpu_memory else ()
        refused |= _grant_errors(owner, request, groups)
    if found := mounts.errors(None, request.mounts, planned):
        refused["mounts"] = " ".join([*found, *filter(None, [refused.get("mounts")])])
    return refused | _shape_errors(request)


def _check_request(owner: User, request: LaunchRequest, planned: MountPlan) -> None:
    errors = problems(owner, request, planned)
    if errors:
        raise RejectedError(errors)


def _rows(
    owner: User,
    request: LaunchRequest,
    fgpu: int,
    names: Sequence[str],
    now: datetime,
    planned: MountPlan,
    groups: Sequence[ResourceGroup],
) -> Iterator[Session]:
    reason = Reason.DEPENDENCY if request.depends_on else Reason.SUBMITTED
    bounds = bounds_of(owner, request.project)
    is_preemptible = preemption.is_asked(bounds, request.is_preemptible)
    own = [task.environment for task in request.tasks] or [{}] * len(names)
    for position, name in enumerate(names):
        yield Session(
            owner=owner,
            project=request.project,
            name=name,
            image=request.image,
            resource_group=groups[0],
            group_choices=[group.pk for group in groups] if len(groups) > 1 else [],
            gpu_model=request.gpu_model,
            min_gpu_memory=group_choice.min_gpu_memory_of(request),
            cpu=request.cpu,
            memory=request.memory,
            shared_memory=request.shared_memory,
            fgpu=fgpu,
            gpu_memory=request.gpu_memory,
            min_fgpu=max(request.fgpu, request.image.min_fgpu) if request.gpu_memory else 0,
            environment={**request.environment, **own[position]},
            is_task=bool(request.tasks),
            priority=policy_checks.priority_of(owner, request.project, request.priority),
            allow_sudo=bounds.allow_sudo,
            is_preemptible=is_preemptible,
            charge_percent=preemption.charge_percent(groups[0], is_preemptible=is_preemptible),
            kind=request.kind.value,
            command=request.command,
            time_limit=request.time_limit,
            not_before=request.not_before,
            required_roots=list(planned.required_roots),
            wanted_roots=list(planned.wanted_roots),
            reason=reason.value,
            created_at=now + timedelta(microseconds=position),  # distinct, which fixes their queue order
            status_at=now,
        )


def _shape_errors(request: LaunchRequest) -> dict[str, str]:
    errors = validation.amount_errors(
        cpu=request.cpu,
        memory=request.memory,
        shared_memory=request.shared_memory,
        fgpu=request.fgpu,
        count=request.count,
    )
    if request.name and (error := validation.name_error(request.name)):
        errors["name"] = error
    environments = [request.environment, *({**request.environment, **task.environment} for task in request.tasks)]
    found = {
        "environment": next(filter(None, map(validation.environment_error, environments)), None),
        "command": validation.command_error(request.command),
        "time_limit": validation.time_limit_error(request.time_limit),
        "not_before": validation.start_error(request.not_before, clock.now()),
        "gpu_model": validation.gpu_model_error(request.gpu_model, request.most_fgpu),
        "min_gpu_memory": validation.min_gpu_memory_error(request.min_gpu_memory, request.most_fgpu),
        "gpu_memory": validation.gpu_memory_error(
            request.gpu_memory, request.min_gpu_memory, str(request.image), request.image.min_gpu_memory
        ),
    }
    return errors | clusters.request_errors(request) | {name: error for name, error in found.items() if error}


def _grant_errors(owner: User, request: LaunchRequest, groups: Sequence[ResourceGroup]) -> dict[str, str]:
    """Return {field: message} for what the policies or the image never allow; by GPU memory, in these groups."""
    if request.gpu_memory:
        errors = _grant_errors(owner, group_choice.least_share(groups, request), ())
        return {"gpu_memory" if name == "fgpu" else name: message for name, message in errors.items()}
    errors = {}
    if refusal := image_choice.refusal(owner, request.image):
        errors["image"] = refusal
    image = request.image
    for name, least in (("cpu", image.min_cpu), ("memory", image.min_memory), ("fgpu", image.min_fgpu)):
        if getattr(request, name) < least:
            errors[name] = f"{image} needs at least {amount_text(name, least)}."
    count = request.members
    asked = Amounts(**request.together._asdict(), sessions=count)
    errors |= policy_checks.limit_errors(
        owner,
        request.project,
        asked,
        count=request.count,
        grows_to=request.cluster.most if request.cluster else 1,
        priority=request.priority,
        time_limit=request.time_limit,
    )
    if error := dependencies.error(owner, request.depends_on):
        errors["depends_on"] = error
    bounds = bounds_of(owner, request.project)
    if request.cluster and request.cluster.most > bounds.max_cluster_size:
        field = "cluster_size" if request.members > bounds.max_cluster_size else "cluster_max_size"
        errors[field] = f"Your policy allows clusters of at most {bounds.max_cluster_size} members."
    if request.is_preemptible is False and bounds.preemptible_only:
        errors["is_preemptible"] = "Your policy allows preemptible sessions only."
    return errors


def _names(owner: User, request: LaunchRequest) -> list[str]:
    """Return the names of the sessions; raise RejectedError when a live session of the owner has one already."""
    if not request.name and not request.tasks:
        return _random_names(owner, request.count)
    names = [task.name for task in request.tasks] or _numbered(request.name, request.count)
    if len(names[-1]) > validation.MAX_NAME_LENGTH:
        most = validation.MAX_NAME_LENGTH
        raise RejectedError({"name": f"With -{request.count} added, the name is longer than {most} characters."})
    if taken := _taken(owner, names):
        raise RejectedError(
            {"name": f"You have a session called {sorted(taken)[0]} already; end it or choose another name."}
        )
    return names


def _random_names(owner: User, count: int) -> list[str]:
    """Return names that no live session of the owner has."""
    while True:
        names = _numbered(random_name(), count)
        if not _taken(owner, names):
            return names


def _numbered(base: str, count: int) -> list[str]:
    return [base] if count == 1 else [f"{base}-{number}" for number in range(1, count + 1)]


def _taken(owner: User, names: Sequence[str]) -> Collection[str]:
    """Return those of the names that live sessions of the owner have."""
    return Session.objects.filter(owner=owner, name__in=names, status__in=LIVE).values_list("name", flat=True)
