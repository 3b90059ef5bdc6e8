"""Live resize: a running session gets more or fewer cores, more or less memory, or another share of its GPU.

All members of a cluster get the same: what one of them cannot have, none gets. Where the first has a size of its own,
it is resized by itself, and the others together.

The transaction of the request gives it the greater of what it has and what is asked for, amount by amount, so that
nothing is promised twice. Its host then applies the change (hostworker/containers/resizer.py), and one transaction
sets what was asked for and frees the rest; or, where the session uses more than that, what it had before.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

from django.db import connection, transaction
from django.db.models import F, prefetch_related_objects
from django.db.models.functions import Least
from django.utils.translation import gettext as _

from accounts import audit, limits
from accounts.limits import Amounts
from accounts.models import User
from resources import clock
from resources.amounts.units import FGPU_STEP, amount_text, fgpu_text, size_text
from resources.gpus.shares import share_bytes, share_milli_for
from resources.gpus.tiers import Tier
from resources.hosts import kinds
from resources.kick import kick_scheduler
from resources.models import HostStatus
from sessions import notes, notify
from sessions.errors import GENERAL, RejectedError
from sessions.launching import validation
from sessions.lifecycle import Reason, Status
from sessions.limits import held as usage
from sessions.limits import locks as capacity_locks
from sessions.limits import policy_checks
from sessions.models import GpuShare, Lease, Session, alike, first_refusal, locked_members
from sessions.resizing.room import by_host, level, room
from sessions.resizing.sizes import SessionSize, StoredResize
from translation.english import from_english

logger = logging.getLogger(__name__)

DEADLINE: Final = timedelta(minutes=10)  # until its host has applied it
WAITS_FOR_ROOM: Final = (Reason.NO_CAPACITY.value, Reason.RESERVED.value, Reason.PREEMPTION.value)
RESIZABLE_TIERS: Final = frozenset({Tier.HOOK, Tier.KERNEL})
RELATED: Final = ("owner__policy", "project__policy", "image", "resource_group", "host", "lease", "cluster")
GAVE_UP: Final = "Its host did not resize it in time. It holds the larger of both until it is resized again."


def members_of(session: Session) -> list[Session]:
    """Return the session, or the members of its size that have a place, with what is needed below; three queries."""
    return _with_shares(_present(session, session.members.select_related(*RELATED)))


def _present(session: Session, members: Iterable[Session]) -> list[Session]:
    of_its_size = next(of_one for of_one in alike(members) if session in of_one)
    return [member for member in of_its_size if member == session or not member.is_absent]


def refusal(members: Sequence[Session]) -> str:
    """Return why the session, or all members of a cluster, cannot be resized now, whatever to; "" if they can."""
    return first_refusal(members, _refusal)


def _refusal(session: Session) -> str:
    if session.status != Status.RUNNING:
        return _("Only a running session can be resized.")
    if session.resize is not None:
        return _("It is being resized; try again when that is done.")
    if session.preempt_by is not None:
        return _("It ends for another session, as it is preemptible.")
    if session.host is None or session.host.status != HostStatus.READY:
        return _("Its host is not ready at present; try again later.")
    return ""


def gpu_refusal(members: Sequence[Session]) -> str:
    """Return why their shares of GPUs cannot be changed, "" if they can."""
    return _apart_refusal(members[0]) or first_refusal(members, _gpu_refusal)


def _apart_refusal(session: Session) -> str:
    """Return why main1, or the others, cannot have another share of a GPU without each other; "" if they can."""
    if not session.fgpu or session.cluster is None or not session.cluster.main_differs:
        return ""
    others = session.members.filter(rank=0) if session.rank else session.members.exclude(rank=0)
    return _("main1 and the others keep the same part of a GPU.") if others.filter(fgpu__gt=0).exists() else ""


def _gpu_refusal(session: Session) -> str:
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

    All members of a cluster are resized, or none. One that waits asks for less from now on, and keeps its place in the
    queue. Does nothing where it has just that, or is being resized to it. Raises RejectedError with a message for
    "cpu", "memory" or "fgpu", or GENERAL; nothing is written then.
    """
    with transaction.atomic():
        members = _locked(session)
        session = next(member for member in members if member == session)
        if session.status == Status.PENDING:
            return _ask_for_less(session, members, target, actor)
        if changing := [member for member in members if not _is_or_becomes(member, target)]:
            if error := refusal(members):
                raise RejectedError({GENERAL: error})
            if errors := problems(members, target, actor):
                raise RejectedError(errors)
        for member in changing:
            _write(member, target, actor)
        if changing:
            _set_for_absent(session, target)
    return session


def share_for(session: Session, gpu_memory: int) -> int:
    """Return the milli-fGPU of its GPUs of which the session, or each member, has so many bytes.

    Raises RejectedError, at "gpu_memory", for one that holds no part of a GPU, or was not launched with GPU memory.
    """
    if not session.gpu_memory:
        raise RejectedError({"gpu_memory": _("It was launched with a share of a GPU: name that.")})
    gpus = [share.gpu for member in members_of(session) for share, _tier in member.held_shares]
    if not gpus:
        raise RejectedError({"gpu_memory": _("It asks for GPU memory, of which it gets a share once it starts.")})
    least, capacity = min(gpu.memory for gpu in gpus), session.resource_group.gpu_capacity
    if not 0 < gpu_memory < least:
        raise RejectedError(
            {"gpu_memory": _("It keeps a part of its GPU, which has %(size)s.") % {"size": size_text(least)}}
        )
    return share_milli_for(gpu_memory, least, capacity)


def _ask_for_less(session: Session, members: Sequence[Session], target: SessionSize, actor: User) -> Session:
    """Have a waiting session, or these members of its cluster, ask for smaller amounts, under the locks of `resize`."""
    before = SessionSize.of(session)
    if target == before:
        return session
    if session.parked_on_id is not None:
        raise RejectedError({GENERAL: _("It was parked, and waits for what it had.")})
    if errors := _errors_of_less(session, target):
        raise RejectedError(errors)
    if session.members.exclude(status=Status.PENDING).exists():
        raise RejectedError({GENERAL: _("Not all of its members wait; try again when they do.")})
    Session.objects.filter(pk__in=[member.pk for member in members]).update(**asdict(target))
    _set_for_absent(session, target)
    session.cpu, session.memory, session.fgpu = target.cpu, target.memory, target.fgpu
    notes.note(session.main, Reason.RESIZED, f"It asks for {target} now.", actor=actor)
    kick_scheduler()
    return session


def _set_for_absent(session: Session, target: SessionSize) -> None:
    """Have elastic members that start later have these amounts at once, if they are of the session's size."""
    if session.cluster is not None and (session.rank or not session.cluster.main_differs):
        absent = session.members.filter(is_elastic=True, status=Status.PENDING)
        absent.update(**asdict(target))
        if (stored := StoredResize.of(session)) and stored.gpu_memory:
            memory = stored.gpu_memory
            absent.update(gpu_memory=memory, min_gpu_memory=memory, min_fgpu=Least(F("min_fgpu"), target.fgpu))


def _errors_of_less(session: Session, target: SessionSize) -> dict[str, str]:
    """Return {field: message} for amounts for which a waiting session cannot ask instead."""
    before = SessionSize.of(session)
    errors = _shape_errors(session, target)
    for name, amount in asdict(target).items():
        if amount > getattr(before, name):
            errors.setdefault(name, _("A waiting session can only ask for less; launch another one for more."))
    if session.gpu_memory and target.fgpu != before.fgpu:
        errors["fgpu"] = _("It asks for GPU memory, of which it gets a share once it starts.")
    if session.min_gpu_memory and target.fgpu < before.fgpu:
        asked = {"size": size_text(session.min_gpu_memory)}
        errors.setdefault("fgpu", _("It was launched with at least %(size)s of GPU memory.") % asked)
    if not session.gpu_memory and target.fgpu != before.fgpu:
        for name, message in kinds.part_refusal(session.resource_group, target.fgpu).items():
            errors.setdefault(name, from_english(message))
    capacity = session.resource_group.gpu_capacity
    if session.cluster_id is not None and target.fgpu > capacity and target.fgpu % capacity:
        errors.setdefault("fgpu", _("A member of a cluster has a part of one GPU, or whole GPUs."))
    if target.fgpu != before.fgpu and (error := _apart_refusal(session)):
        errors.setdefault("fgpu", error)
    return errors


def _is_or_becomes(session: Session, target: SessionSize) -> bool:
    """Return whether its container has this size, or is being given it; False where that is not known."""
    if under_way := StoredResize.of(session):
        return under_way.target == target
    ends = session.events.filter(reason__in=(Reason.RESIZED, Reason.RESIZE_REFUSED)).order_by("-pk")
    return SessionSize.of(session) == target and ends.values_list("detail", flat=True).first() != GAVE_UP


def problems(members: Sequence[Session], target: SessionSize, actor: User) -> dict[str, str]:
    """Return {field: message} for what cannot be granted now; exact under the locks of `resize`."""
    sizes = [SessionSize.of(member) for member in members]
    errors = _shape_errors(members[0], target)
    if any(size.fgpu != target.fgpu for size in sizes) and (error := _gpu_error(members, target)):
        errors.setdefault("fgpu", error)
    if all(size.joined(target) == size for size in sizes):
        return errors
    for name, message in (*_host_errors(members, target), *_limit_errors(members, target)):
        errors.setdefault(name, message)
    if error := growth_refusal(members, actor):
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
        resized.refresh_from_db(fields=["resize", "cpu", "memory", "fgpu", "gpu_memory", "min_fgpu", "status"])
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


def _locked(session: Session) -> list[Session]:
    """Return `members_of` under the locks of their group, of their owner's and project's limits, and of their rows."""
    for group_id in sorted({session.resource_group_id, *session.group_choices}):  # which stay, as do its holders
        capacity_locks.hold_group(group_id)
    capacity_locks.hold_limits([session.owner_id], [session.project_id] if session.project_id else [])
    return _with_shares(_present(session, locked_members(session.pk, *RELATED)))


def _with_shares(members: list[Session]) -> list[Session]:
    prefetch_related_objects(members, "lease__shares__gpu")
    return members


def _write(session: Session, target: SessionSize, actor: User) -> None:
    """Store the resize, give the session the greater of each amount, and notify its host."""
    before = SessionSize.of(session)
    held = before.joined(target)
    stored = StoredResize(id=uuid4().hex, at=clock.now(), before=before, target=target)
    if session.gpu_memory and target.fgpu != before.fgpu:
        gpu_memory = session.held_shares[0][0].gpu.memory
        stored = replace(stored, gpu_memory=share_bytes(gpu_memory, target.fgpu, session.resource_group.gpu_capacity))
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
    if session.gpu_memory and target.fgpu > 0:
        errors.pop("fgpu", None)  # shares by memory are exact to a thousandth
    if errors.pop("shared_memory", None):
        taken = size_text(session.shared_memory)
        errors.setdefault("memory", _("Its shared memory takes %(size)s of it, and stays as it is.") % {"size": taken})
    min_fgpu = image.min_fgpu if session.fgpu or session.rank else 0  # main1 may have none
    for name, least in (("cpu", image.min_cpu), ("memory", image.min_memory), ("fgpu", min_fgpu)):
        if amounts[name] < least:
            errors.setdefault(name, from_english(f"{image} needs at least {amount_text(name, least)}."))
    return {name: from_english(message) for name, message in errors.items()}


def _gpu_error(members: Sequence[Session], target: SessionSize) -> str:
    """Return why these shares of GPUs cannot be had whoever else holds what; "" if they can."""
    if error := gpu_refusal(members):
        return error
    capacity, first = members[0].resource_group.gpu_capacity, members[0]
    least = first.image.min_gpu_memory if first.gpu_memory else first.min_gpu_memory
    if not 0 < target.fgpu < capacity:
        bounds = {"least": fgpu_text(FGPU_STEP), "most": fgpu_text(capacity - FGPU_STEP)}
        return _("A part of a GPU stays one: from %(least)s to %(most)s fGPU.") % bounds
    gpus = [member.held_shares[0][0].gpu for member in members]
    if any(share_bytes(gpu.memory, target.fgpu, capacity) < least for gpu in gpus):
        return _("It was launched with at least %(size)s of GPU memory.") % {"size": size_text(least)}
    return ""


def growth_refusal(members: Sequence[Session], actor: User) -> str:
    """Return why they can only be made smaller now, "" if they can grow; one query, where there is no `refusal`.

    Those who wait for what is free come first, unless a superadmin decides otherwise.
    """
    if any(host.is_cordoned for host in by_host(members)):
        return _("Its host takes no more at present; it can only be made smaller.")
    waiting = Session.objects.waiting_in(members[0].resource_group_id).filter(reason__in=WAITS_FOR_ROOM)
    if not actor.is_superuser and waiting.exists():
        return _("Others wait for resources in this resource group; what is free goes to them first.")
    return ""


def most_now(members: Sequence[Session], actor: User) -> SessionSize:
    """Return to how much of each amount, by itself, all could be resized now; at least what the first holds.

    Call it where there is no `refusal`; eight queries at most.
    """
    first = members[0]
    before = SessionSize.of(first)
    if growth_refusal(members, actor):
        return before
    most = asdict(room(members, with_gpu=not gpu_refusal(members)))
    for _whose, holder, policy_limits in policy_checks.holders(first.owner, first.project):
        held = usage.usage_of(holder)
        for name in most:
            if (limit := getattr(policy_limits, name)) is not None:
                most[name] = min(most[name], level(members, name, limit - getattr(held, name)))
    return SessionSize(**most).joined(before)


def _host_errors(members: Sequence[Session], target: SessionSize) -> list[tuple[str, str]]:
    """Return the amounts that their hosts, or GPUs, have not free; two queries at most."""
    amounts = asdict(target)
    least = {name: min(getattr(member, name) for member in members) for name in amounts}
    free = room(members, with_gpu=target.fgpu > least["fgpu"] and not gpu_refusal(members))
    text = _("Its host has room for at most %(amount)s in this session now.")
    if len(members) > 1:
        text = _("Its hosts have room for at most %(amount)s in each member now.")
    return [
        (name, text % {"amount": from_english(amount_text(name, bound))})
        for name, bound in asdict(free).items()
        if least[name] < amounts[name] and amounts[name] > bound
    ]


def _limit_errors(members: Sequence[Session], target: SessionSize) -> list[tuple[str, str]]:
    """Return the amounts that a policy does not allow beside what else is held; two queries at most."""
    more = {
        name: sum(max(0, amount - getattr(member, name)) for member in members)
        for name, amount in asdict(target).items()
    }
    found = []
    for whose, holder, policy_limits in policy_checks.holders(members[0].owner, members[0].project):
        held = usage.usage_of(holder)
        for name in limits.exceeded(policy_limits, held + Amounts(**more)):
            if more.get(name):
                most, mine = (amount_text(name, getattr(each, name)) for each in (policy_limits, held))
                found.append((name, from_english(f"{whose} allows at most {most} in all, of which {mine} are held.")))
    return found
