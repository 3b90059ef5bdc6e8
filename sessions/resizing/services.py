"""Live resize: a running session gets more or fewer cores, more or less memory, or another share of its GPU.

The transaction of the request gives it the greater of what it has and what is asked for, amount by amount, so that
nothing is promised twice. Its host then applies the change (hostworker/containers/resizer.py), and one transaction
sets what was asked for and frees the rest; or, where the session uses more than that, what it had before.
"""

import logging
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from django.db import connection, transaction
from django.db.models import Sum
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from accounts import audit, limits
from accounts.limits import Amounts
from accounts.models import User
from resources import clock
from resources.amounts.units import CORE_MILLI, FGPU_STEP, amount_text, fgpu_text, listing, size_text
from resources.gpus.shares import share_bytes
from resources.gpus.tiers import Tier
from resources.kick import kick_scheduler
from resources.models import HostStatus
from sessions import notes, notify
from sessions.errors import GENERAL, RejectedError
from sessions.launching import validation
from sessions.lifecycle import Reason, Status
from sessions.limits import held as usage
from sessions.limits import locks as capacity_locks
from sessions.limits import policy_checks
from sessions.models import GpuShare, Lease, Session, cpu_held
from translation.english import from_english

logger = logging.getLogger(__name__)

DEADLINE: Final = timedelta(minutes=10)  # until its host has applied it
WAITS_FOR_ROOM: Final = (Reason.NO_CAPACITY.value, Reason.RESERVED.value, Reason.PREEMPTION.value)
RESIZABLE_TIERS: Final = frozenset({Tier.HOOK, Tier.KERNEL})
GAVE_UP: Final = "Its host did not resize it in time. It holds the larger of both until it is resized again."


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSize:
    """What a session holds of its host: cores, bytes of memory, milli-fGPU."""

    cpu: int
    memory: int
    fgpu: int

    @classmethod
    def of(cls, session: Session) -> "SessionSize":
        """Return what the session holds now."""
        return cls(cpu=session.cpu, memory=session.memory, fgpu=session.fgpu)

    def joined(self, other: "SessionSize") -> "SessionSize":
        """Return the greater of each amount."""
        return SessionSize(
            cpu=max(self.cpu, other.cpu), memory=max(self.memory, other.memory), fgpu=max(self.fgpu, other.fgpu)
        )

    def __str__(self) -> str:
        return listing([amount_text(name, amount) for name, amount in asdict(self).items() if amount])


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResize:
    """A resize that its host has not applied yet."""

    id: str
    at: datetime
    before: SessionSize
    target: SessionSize

    def as_json(self) -> dict[str, Any]:
        """Return the value of `Session.resize`; the database reads it too (`migrations/0023_live_resize.py`)."""
        return {"id": self.id, "at": self.at.isoformat(), "from": asdict(self.before), "to": asdict(self.target)}

    @classmethod
    def of(cls, session: Session) -> "StoredResize | None":
        """Return the resize that the session waits for; None without one."""
        value: Any = session.resize
        if value is None:
            return None
        at = parse_datetime(value["at"])
        assert at is not None  # written by `as_json`
        return cls(id=value["id"], at=at, before=SessionSize(**value["from"]), target=SessionSize(**value["to"]))


def refusal(session: Session) -> str:
    """Return why the session cannot be resized now, whatever to; "" if it can. Fetch its host with it."""
    if session.status != Status.RUNNING:
        return _("Only a running session can be resized.")
    if session.resize is not None:
        return _("It is being resized; try again when that is done.")
    if session.preempt_by is not None:
        return _("It ends for another session, as it is preemptible.")
    if session.host is None or session.host.status != HostStatus.READY:
        return _("Its host is not ready at present; try again later.")
    return ""


def gpu_refusal(session: Session) -> str:
    """Return why its share of the GPU cannot be changed, "" if it can; fetch its lease with the shares and GPUs."""
    if not session.fgpu:
        return _("It was started without a GPU; launch a session with one instead.")
    held = session.held_shares
    if len(held) > 1:
        return _("It holds several GPUs, of which none can be resized; launch another session instead.")
    if any(share.milli >= session.resource_group.gpu_capacity for share, _tier in held):
        return _("It holds a whole GPU, which cannot become a part of one; launch another session instead.")
    if any(tier not in RESIZABLE_TIERS for _share, tier in held):
        return _("Its share is held by MPS or the hardware, which cannot change it; launch another session instead.")
    return ""


@audit.recorded_for_others("resize")
def resize(session: Session, target: SessionSize, *, actor: User) -> Session:
    """Have the host of the running session change what it holds, and return its row, which holds both until then.

    One that waits asks for less from now on, and keeps its place in the queue. Does nothing where it has just that, or
    is being resized to it. Raises RejectedError with a message for "cpu", "memory" or "fgpu", or GENERAL; nothing is
    written then.
    """
    with transaction.atomic():
        session = _locked(session)
        if session.status == Status.PENDING:
            return _ask_for_less(session, target, actor)
        if _is_or_becomes(session, target):
            return session
        if error := refusal(session):
            raise RejectedError({GENERAL: error})
        if errors := problems(session, target, actor):
            raise RejectedError(errors)
        _write(session, target, actor)
    return session


def _ask_for_less(session: Session, target: SessionSize, actor: User) -> Session:
    """Have a waiting session ask for smaller amounts, under the locks of `resize`."""
    before = SessionSize.of(session)
    if target == before:
        return session
    if session.parked_on_id is not None:
        raise RejectedError({GENERAL: _("It was parked, and waits for what it had.")})
    errors = _shape_errors(session, target)
    for name, amount in asdict(target).items():
        if amount > getattr(before, name):
            errors.setdefault(name, _("A waiting session can only ask for less; launch another one for more."))
    if session.min_gpu_memory and target.fgpu < before.fgpu:
        asked = {"size": size_text(session.min_gpu_memory)}
        errors.setdefault("fgpu", _("It was launched with at least %(size)s of GPU memory.") % asked)
    if errors:
        raise RejectedError(errors)
    Session.objects.filter(pk=session.pk).update(**asdict(target))
    session.cpu, session.memory, session.fgpu = target.cpu, target.memory, target.fgpu
    notes.note(session, Reason.RESIZED, f"It asks for {target} now.", actor=actor)
    kick_scheduler()
    return session


def _is_or_becomes(session: Session, target: SessionSize) -> bool:
    """Return whether its container has this size, or is being given it; False where that is not known."""
    if under_way := StoredResize.of(session):
        return under_way.target == target
    ends = session.events.filter(reason__in=(Reason.RESIZED, Reason.RESIZE_REFUSED)).order_by("-pk")
    return SessionSize.of(session) == target and ends.values_list("detail", flat=True).first() != GAVE_UP


def problems(session: Session, target: SessionSize, actor: User) -> dict[str, str]:
    """Return {field: message} for what cannot be granted now; exact under the locks of `resize`."""
    before = SessionSize.of(session)
    errors = _shape_errors(session, target)
    if target.fgpu != before.fgpu and "fgpu" not in errors and (error := _gpu_error(session, target)):
        errors["fgpu"] = error
    if target.joined(before) == before:
        return errors
    for name, message in (*_host_errors(session, target), *_limit_errors(session, target)):
        errors.setdefault(name, message)
    if error := growth_refusal(session, actor):
        errors[GENERAL] = error
    return errors


def finish(session_id: str, resize_id: str, problem: str = "") -> bool:
    """Give the session what was asked for, or what it had before where there is a problem.

    Returns False, and changes nothing, where the resize is over or the session does not run any more.
    """
    with transaction.atomic():
        resized = Session.objects.filter(pk=session_id).first()
        stored = StoredResize.of(resized) if resized else None
        if resized is None or stored is None or not _finish(session_id, resize_id, is_applied=not problem):
            return False
        resized.refresh_from_db(fields=["resize", "cpu", "memory", "fgpu", "status"])
        if problem:
            notes.note(resized, Reason.RESIZE_REFUSED, problem)
        else:
            notes.note(resized, Reason.RESIZED, f"It has {stored.target} now.")
        kick_scheduler()
    logger.info("session %s: %s", session_id, f"not resized: {problem}" if problem else f"resized to {stored.target}")
    return True


def give_up_late(now: datetime) -> None:
    """Give up resizes that their hosts did not apply in time: what was applied is not known, so all stays held."""
    for session in Session.objects.filter(resize__isnull=False, status=Status.RUNNING):
        stored = StoredResize.of(session)
        if stored is None or now - stored.at < DEADLINE:
            continue
        with transaction.atomic():
            if Session.objects.filter(pk=session.pk, status=Status.RUNNING, resize__id=stored.id).update(resize=None):
                notes.note(session, Reason.RESIZE_REFUSED, GAVE_UP)


def _locked(session: Session) -> Session:
    """Return the session under the locks of its group, of its owner's and project's limits, and of its row."""
    for group_id in sorted({session.resource_group_id, *session.group_choices}):  # which stay, as do its holders
        capacity_locks.hold_group(group_id)
    capacity_locks.hold_limits([session.owner_id], [session.project_id] if session.project_id else [])
    rows = Session.objects.select_for_update(of=("self",), no_key=True)
    related = ("owner__policy", "project__policy", "image", "resource_group", "host", "lease")
    return rows.select_related(*related).prefetch_related("lease__shares__gpu").get(pk=session.pk)


def _write(session: Session, target: SessionSize, actor: User) -> None:
    """Store the resize, give the session the greater of each amount, and notify its host."""
    before = SessionSize.of(session)
    held = before.joined(target)
    stored = StoredResize(id=uuid4().hex, at=clock.now(), before=before, target=target)
    Session.objects.filter(pk=session.pk).update(resize=stored.as_json(), **asdict(held))
    Lease.objects.filter(session=session.pk).update(cpu=held.cpu, memory=held.memory)
    if held.fgpu != before.fgpu:
        GpuShare.objects.filter(lease=session.pk).update(milli=held.fgpu)
    session.resize = stored.as_json()
    session.cpu, session.memory, session.fgpu = held.cpu, held.memory, held.fgpu
    notes.note(session, Reason.RESIZING, f"From {before} to {target}.", actor=actor)
    if session.host is not None:
        notify.send_to_host(session.host.name, "resize_session", session.pk, stored.id)


def _finish(session_id: str, resize_id: str, *, is_applied: bool) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT compute_finish_resize(%s, %s, %s)", [session_id, resize_id, is_applied])
        return bool(cursor.fetchone()[0])


def _shape_errors(session: Session, target: SessionSize) -> dict[str, str]:
    """Return {field: message} for amounts that no session may have, or not this one."""
    amounts, image = asdict(target), session.image
    errors = validation.amount_errors(**amounts, shared_memory=session.shared_memory, count=1)
    if errors.pop("shared_memory", None):
        taken = size_text(session.shared_memory)
        errors.setdefault("memory", _("Its shared memory takes %(size)s of it, and stays as it is.") % {"size": taken})
    for name, least in (("cpu", image.min_cpu), ("memory", image.min_memory), ("fgpu", image.min_fgpu)):
        if amounts[name] < least:
            errors.setdefault(name, from_english(f"{image} needs at least {amount_text(name, least)}."))
    return {name: from_english(message) for name, message in errors.items()}


def _gpu_error(session: Session, target: SessionSize) -> str:
    """Return why this share of its GPU cannot be had whoever else holds what; "" if it can."""
    if error := gpu_refusal(session):
        return error
    capacity = session.resource_group.gpu_capacity
    if not 0 < target.fgpu < capacity:
        bounds = {"least": fgpu_text(FGPU_STEP), "most": fgpu_text(capacity - FGPU_STEP)}
        return _("A part of a GPU stays one: from %(least)s to %(most)s fGPU.") % bounds
    share, _tier = session.held_shares[0]
    if share_bytes(share.gpu.memory, target.fgpu, capacity) < session.min_gpu_memory:
        return _("It was launched with at least %(size)s of GPU memory.") % {"size": size_text(session.min_gpu_memory)}
    return ""


def growth_refusal(session: Session, actor: User) -> str:
    """Return why it can only be made smaller now, "" if it can grow; one query, where there is no `refusal`.

    Those who wait for what is free come first, unless a superadmin decides otherwise.
    """
    assert session.host is not None  # by `refusal`
    if session.host.is_cordoned:
        return _("Its host takes no more at present; it can only be made smaller.")
    waiting = Session.objects.waiting_in(session.resource_group_id).filter(reason__in=WAITS_FOR_ROOM)
    if not actor.is_superuser and waiting.exists():
        return _("Others wait for resources in this resource group; what is free goes to them first.")
    return ""


def most_now(session: Session, actor: User) -> SessionSize:
    """Return to how much of each amount, by itself, the session could be resized now; at least what it holds.

    Call it where there is no `refusal`; eight queries at most.
    """
    before = SessionSize.of(session)
    if growth_refusal(session, actor):
        return before
    most = asdict(_room(session, with_gpu=not gpu_refusal(session)))
    for _whose, holder, policy_limits in policy_checks.holders(session.owner, session.project):
        held = usage.usage_of(holder)
        for name in most:
            if (limit := getattr(policy_limits, name)) is not None:
                most[name] = min(most[name], limit - getattr(held, name) + getattr(before, name))
    return SessionSize(**most).joined(before)


def _room(session: Session, *, with_gpu: bool) -> SessionSize:
    """Return what its host, and its GPU where that is asked for, has for the session; two queries at most."""
    host, before = session.host, SessionSize.of(session)
    assert host is not None  # by `refusal`
    held = Lease.objects.filter(host=host).aggregate(cpu=cpu_held(), memory=Sum("memory", default=0))
    more_cores = (host.cpu * CORE_MILLI - held["cpu"]) // session.core_milli
    fgpu, capacity = before.fgpu, session.resource_group.gpu_capacity
    if with_gpu:
        gpu = session.held_shares[0][0].gpu
        shared = GpuShare.objects.filter(gpu=gpu).aggregate(milli=Sum("milli", default=0))["milli"]
        fgpu = min(capacity - FGPU_STEP, capacity - shared + before.fgpu)
    return SessionSize(
        cpu=min(host.cpu, before.cpu + more_cores), memory=host.memory - held["memory"] + before.memory, fgpu=fgpu
    )


def _host_errors(session: Session, target: SessionSize) -> list[tuple[str, str]]:
    """Return the amounts that its host, or its GPU, has not free; two queries at most."""
    before, amounts = asdict(SessionSize.of(session)), asdict(target)
    room = _room(session, with_gpu=target.fgpu > before["fgpu"] and not gpu_refusal(session))
    text = _("Its host has room for at most %(amount)s in this session now.")
    return [
        (name, text % {"amount": from_english(amount_text(name, bound))})
        for name, bound in asdict(room).items()
        if before[name] < amounts[name] and amounts[name] > bound
    ]


def _limit_errors(session: Session, target: SessionSize) -> list[tuple[str, str]]:
    """Return the amounts that a policy does not allow beside what else is held; two queries at most."""
    before = SessionSize.of(session)
    more = {name: max(0, amount - getattr(before, name)) for name, amount in asdict(target).items()}
    found = []
    for whose, holder, policy_limits in policy_checks.holders(session.owner, session.project):
        held = usage.usage_of(holder)
        for name in limits.exceeded(policy_limits, held + Amounts(**more)):
            if more.get(name):
                most, mine = (amount_text(name, getattr(each, name)) for each in (policy_limits, held))
                found.append((name, from_english(f"{whose} allows at most {most} in all, of which {mine} are held.")))
    return found
