"""The verbs of sessions, as people and the scheduler use them: submit, assign, terminate. One transaction each."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Count, Q
from django.utils import timezone

from accounts import limits
from accounts.limits import Amounts
from accounts.models import User
from resources.capacity import Capacity, shortfalls
from resources.kick import kick_scheduler
from resources.models import Host, Image, ResourceGroup
from resources.units import amount_text, span_text
from sessions import notify, usage, validation
from sessions.errors import GENERAL, RejectedError
from sessions.lifecycle import FINAL, IN_CONTAINER, LIVE, Kind, Reason, Status
from sessions.models import Placed, Session, SessionEvent, StaleSessionError


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """What a user asks for: `count` sessions of this shape. Memory in bytes, fGPU in milli-fGPU."""

    image: Image
    resource_group: ResourceGroup
    cpu: int
    memory: int
    shared_memory: int
    fgpu: int = 0
    name: str = ""  # empty: a random one
    count: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    priority: int = 10
    command: str = ""  # of a batch session, which ends with it; empty: an interactive one
    time_limit: timedelta | None = None
    not_before: datetime | None = None
    depends_on: Sequence[Session] = ()


def submit(owner: User, order: LaunchRequest) -> list[Session]:
    """Queue the sessions of `order` and return them, the first to be served first.

    Raises RejectedError with a message per field of LaunchRequest (`GENERAL` for none); then nothing is written.
    """
    _check_order(owner, order)
    with transaction.atomic():
        # Names and the pending limit are decided one by one; what only refers to the user need not wait.
        User.objects.select_for_update(no_key=True).get(pk=owner.pk)
        names = _names(owner, order)
        _check_pending_limit(owner, order)
        now = timezone.now()
        sessions = Session.objects.bulk_create(_rows(owner, order, names, now))
        links = Session.depends_on.through
        links.objects.bulk_create(
            links(from_session=session, to_session=other) for session in sessions for other in order.depends_on
        )
        SessionEvent.objects.bulk_create(
            SessionEvent(
                session=session, at=now, new_status=Status.PENDING.value, reason=Reason.SUBMITTED.value, actor=owner
            )
            for session in sessions
        )
        kick_scheduler()
        notify.sessions_changed((session.pk, owner.pk) for session in sessions)
    return sessions


def check(owner: User, order: LaunchRequest) -> None:
    """Raise RejectedError for what `submit` would refuse now; writes nothing."""
    _check_order(owner, order)
    _names(owner, order)
    _check_pending_limit(owner, order)


def terminate(session: Session, *, actor: User) -> None:
    """End the session: a waiting one is cancelled, a started one is stopped on its host. Ended already is success."""
    reason = Reason.USER_REQUEST if actor == session.owner else Reason.ADMIN_REQUEST
    end(session, reason, f"Ended by {actor}.", actor=actor)


def end(session: Session, reason: Reason, detail: str, *, actor: User | None = None) -> None:
    """End the session for `reason`, from whatever state it is in by now; ending or ended already is success."""
    while session.status != Status.TERMINATING and session.status not in FINAL:
        target = Status.TERMINATING if session.status in IN_CONTAINER else Status.CANCELLED
        try:
            with transaction.atomic():
                session.move_to(target, reason, detail, actor=actor)
                if target == Status.TERMINATING and session.host is not None:
                    notify.send_to_host(session.host.name, "stop_session", session.pk, session.attempt)
                else:
                    kick_scheduler()
        except StaleSessionError:
            session.refresh_from_db()


def force_end(session: Session, *, actor: User) -> None:
    """End the session at once and free its lease without waiting for its host, which removes the container later.

    For a host that will not come back before its group's grace has passed. Ended already is success.
    """
    end(session, Reason.ADMIN_REQUEST, f"Ended by {actor}.", actor=actor)
    if session.status == Status.TERMINATING:
        detail = f"Forced by {actor}; its host was not heard."
        try:
            with transaction.atomic():
                session.move_to(Status.TERMINATED, Reason.ADMIN_REQUEST, detail, actor=actor)
                kick_scheduler()
        except StaleSessionError:  # its host was quicker
            session.refresh_from_db()


def assign(placements: Sequence[Placed]) -> int:
    """Write the leases of `placements` and tell the hosts; return how many sessions were scheduled. One query.

    Sessions that are no longer PENDING are dropped. Call it in the transaction that read the snapshot and holds the
    scheduler's lock: capacity is then as it was planned, and the database refuses the rest.
    """
    scheduled = Session.objects.schedule(placements)
    notify.send_to_hosts("start_session", [(row.host_name, row.id, row.attempt) for row in scheduled])
    return len(scheduled)


def problems(owner: User, order: LaunchRequest) -> dict[str, str]:
    """Return {field: message} for what is never granted, whoever waits or runs: of each field the first that counts."""
    if ResourceGroup.objects.usable_by(owner).filter(pk=order.resource_group.pk).exists():
        refused = _capacity_errors(order) | _grant_errors(owner, order)
    else:
        refused = {"resource_group": "You may not use this resource group."}
    return refused | _shape_errors(order)


def _check_order(owner: User, order: LaunchRequest) -> None:
    errors = problems(owner, order)
    if errors:
        raise RejectedError(errors)


def _rows(owner: User, order: LaunchRequest, names: Sequence[str], now: datetime) -> Iterator[Session]:
    reason = Reason.DEPENDENCY if order.depends_on else Reason.SUBMITTED
    for position, name in enumerate(names):
        yield Session(
            owner=owner,
            name=name,
            image=order.image,
            resource_group=order.resource_group,
            cpu=order.cpu,
            memory=order.memory,
            shared_memory=order.shared_memory,
            fgpu=order.fgpu,
            environment=dict(order.environment),
            priority=order.priority,
            allow_sudo=owner.policy.allow_sudo,
            kind=(Kind.BATCH if order.command else Kind.INTERACTIVE).value,
            command=order.command,
            time_limit=order.time_limit,
            not_before=order.not_before,
            reason=reason.value,
            created_at=now + timedelta(microseconds=position),  # keeps the order among those submitted together
            status_at=now,
        )


def _shape_errors(order: LaunchRequest) -> dict[str, str]:
    errors = validation.amount_errors(
        cpu=order.cpu,
        memory=order.memory,
        shared_memory=order.shared_memory,
        fgpu=order.fgpu,
        count=order.count,
    )
    if order.name and (error := validation.name_error(order.name)):
        errors["name"] = error
    found = {
        "environment": validation.environment_error(order.environment),
        "command": validation.command_error(order.command),
        "time_limit": validation.time_limit_error(order.time_limit),
        "not_before": validation.start_error(order.not_before, timezone.now()),
    }
    return errors | {name: error for name, error in found.items() if error}


def _grant_errors(owner: User, order: LaunchRequest) -> dict[str, str]:
    """Return {field: message} for what this user's policy or the image never allows, whatever is free."""
    errors = {}
    if not order.image.is_enabled:
        errors["image"] = f"{order.image} is not offered at present."
    image = order.image
    for name, least in (("cpu", image.min_cpu), ("memory", image.min_memory), ("fgpu", image.min_fgpu)):
        if getattr(order, name) < least:
            errors[name] = f"{image} needs at least {amount_text(name, least)}."
    asked = Amounts(cpu=order.cpu, memory=order.memory, fgpu=order.fgpu, sessions=1)
    policy = owner.policy.limits()
    for name in limits.exceeded(policy, asked):
        if name == "sessions":
            errors[GENERAL] = "Your policy allows no sessions."
        else:
            errors[name] = f"Your policy allows at most {amount_text(name, getattr(policy, name))}."
    most = owner.policy.max_lifetime
    if order.time_limit and most and order.time_limit > most:
        errors["time_limit"] = f"Your policy ends sessions after {span_text(most)}."
    if error := _dependency_error(owner, order):
        errors["depends_on"] = error
    return errors


def _dependency_error(owner: User, order: LaunchRequest) -> str | None:
    """Return why the order cannot wait for the sessions that it names, or None."""
    ids = {session.pk for session in order.depends_on}
    if len(ids) > validation.MAX_DEPENDENCIES:
        return f"A session can depend on at most {validation.MAX_DEPENDENCIES} others."
    known = Session.objects.visible_to(owner).filter(pk__in=ids)
    if ids and known.count() < len(ids):
        return "You can only depend on sessions of your own."
    failed = known.failed().first() if ids else None
    return f"{failed.name} ({failed.pk}) has ended without success, so this would never start." if failed else None


def _capacity_errors(order: LaunchRequest) -> dict[str, str]:
    """Return {field: message} for what no host of the group holds even when empty."""
    hosts = Host.objects.filter(group=order.resource_group).order_by()
    devices = Count("gpus", filter=Q(gpus__is_present=True))
    per_gpu = order.resource_group.gpu_capacity
    capacities = [
        Capacity(cpu=cpu, memory=memory, gpu_count=count, gpu_capacity=per_gpu)
        for cpu, memory, count in set(hosts.annotate(devices=devices).values_list("cpu", "memory", "devices"))
    ]
    if not capacities:
        return {"resource_group": "No host has joined this resource group yet."}
    return shortfalls(capacities, cpu=order.cpu, memory=order.memory, fgpu=order.fgpu)


def _names(owner: User, order: LaunchRequest) -> list[str]:
    """Return the names of the sessions; raise RejectedError when a live session of the owner has one already."""
    base = order.name or f"session-{secrets.token_hex(3)}"
    numbers = range(1, order.count + 1)
    names = [base] if order.count == 1 else [f"{base}-{number}" for number in numbers]
    if len(names[-1]) > validation.MAX_NAME_LENGTH:
        raise RejectedError(
            {"name": f"With -{order.count} behind it, the name is longer than {validation.MAX_NAME_LENGTH}."}
        )
    taken = Session.objects.filter(owner=owner, name__in=names, status__in=LIVE).values_list("name", flat=True)
    if taken:
        raise RejectedError(
            {"name": f"You have a session called {sorted(taken)[0]} already; end it or choose another name."}
        )
    return names


def _check_pending_limit(owner: User, order: LaunchRequest) -> None:
    most = owner.policy.max_pending
    waiting = usage.pending_of(owner)
    if most is not None and waiting + order.count > most:
        allowed = f"Your policy allows {most} waiting sessions, and {waiting} wait already"
        raise RejectedError({"count": f"{allowed}: {order.count} more are too many."})
