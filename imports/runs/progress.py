"""Carries imports on: sends the program once the session runs, reads how far it is, and stores what came of it.

Nothing is held between two looks, so whoever dies here is followed by the next: what was sent is not sent twice, and a
session that ends takes its import with it.
"""

import asyncio
import logging
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any, Final

from asgiref.sync import async_to_sync
from django.conf import settings
from django.db import connection, transaction
from django.db.models import F

from engine.containers import container_name
from engine.engine import Engine, EngineConnectionError, ExecError
from engine.output import last_lines
from imports import credentials
from imports.addresses import MAX_REF_LENGTH
from imports.models import Import, ImportCredential, ImportState, ImportTarget
from imports.runs import delivery
from imports.runs.findings import Message, last_message
from resources import clock
from sessions.access.engine_address import HostUnreachableError, engine_of
from sessions.lifecycle import Status
from sessions.models import Session

logger = logging.getLogger(__name__)

MAX_BYTES: Final = 64 * 2**30
MAX_FILES: Final = 1_000_000
LOOK_BYTES: Final = 2**30
TAIL_LINES: Final = 30
ENGINE_SECONDS: Final = 10.0  # of one look at one container
AT_ONCE: Final = 4  # owners whose containers are looked at side by side
OWNER_SECONDS: Final = 5  # in which the containers of one owner are looked at in a round
SLOW_SECONDS: Final = 2.0
MAX_PAUSE_SECONDS: Final = 60.0  # between two looks at containers that do not answer
TIME_LIMIT: Final = timedelta(hours=4)  # of a program in a session that goes on
STOP_SPAN: Final = timedelta(minutes=2)  # in which a cancelled program is told to stop
STALE_NAMES: Final = 20
_Step = tuple[Callable[[Import], None], Import]


def advance_all() -> int:
    """Take each import a step further; return how many are still under way.

    A few owners' containers are looked at side by side, those of one owner one after the other and within a bounded
    time. A host that is not reached is asked once, and whoever has a container that is slow to answer waits longer
    each time. So nobody keeps the imports of others waiting.
    """
    rows = Import.objects.live().select_related("session__host", "session__image", "credential", "owner")
    steps = defaultdict[int, list[_Step]](list)
    for row in rows:
        steps[row.owner_id].append((advance, row))
    for row in _to_stop():
        steps[row.owner_id].append((_stop, row))
    unreached = set[int | None]()
    owners = random.sample(list(steps.values()), len(steps))
    if len(owners) < 2:  # nearly always: no thread, and no connection to the database for it
        for own in owners:
            _advance_owner(own, unreached)
    else:
        with ThreadPoolExecutor(min(AT_ONCE, len(owners)), "imports-of-owner") as pool:
            list(pool.map(partial(_in_thread, unreached=unreached), owners))
    return Import.objects.live().count()


def _in_thread(steps: list[_Step], *, unreached: set[int | None]) -> None:
    try:
        _advance_owner(steps, unreached)
    finally:
        connection.close()


def _advance_owner(steps: list[_Step], unreached: set[int | None]) -> None:
    """Take the imports of one owner a step further, within OWNER_SECONDS and a step."""
    taken = 0.0
    for step, import_ in random.sample(steps, len(steps)):
        host = import_.session.host_id if import_.session else None
        if host in unreached or taken > OWNER_SECONDS or _pauses.holds(import_.owner_id):
            continue
        begun = time.monotonic()
        try:
            step(import_)
            seconds = time.monotonic() - begun
            taken += seconds
            (_pauses.lengthen if seconds > SLOW_SECONDS else _pauses.end)(import_.owner_id)
        except (HostUnreachableError, EngineConnectionError) as failure:
            unreached.add(host)
            logger.info("import %s: its host is not reached now: %s", import_.pk, failure)
        except (ExecError, TimeoutError) as failure:
            _pauses.lengthen(import_.owner_id)
            logger.info("import %s: its container does not answer now: %s", import_.pk, failure)
        except Exception:
            _pauses.lengthen(import_.owner_id)
            logger.exception("import %s: not carried on", import_.pk)


class Pauses:
    """Exponential back-off by owner, in this process."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._pauses: dict[int, tuple[float, float]] = {}  # by owner: until when, and seconds

    def holds(self, owner: int) -> bool:
        """Return whether nothing of this owner is looked at now."""
        return owner in self._pauses and self._now() < self._pauses[owner][0]

    def lengthen(self, owner: int) -> None:
        """Wait twice as long as before, up to MAX_PAUSE_SECONDS."""
        seconds = min(2 * self._pauses.get(owner, (0.0, 0.5))[1], MAX_PAUSE_SECONDS)
        self._pauses[owner] = (self._now() + seconds, seconds)

    def end(self, owner: int) -> None:
        """Forget what went wrong before."""
        self._pauses.pop(owner, None)


_pauses = Pauses()


def _stop(import_: Import) -> None:
    _within(delivery.stop, *_container(import_.session), import_.pk)


def advance(import_: Import) -> None:
    """Take one import a step further. Raises ExecError and HostUnreachableError where its host is not reached now."""
    session = import_.session
    if session is None:
        return _end(import_, ImportState.FAILED, problem="Its session is gone.")
    if session.is_final:
        return _conclude(import_, session)
    if session.status != Status.RUNNING:
        return None
    if import_.begun_attempt != session.attempt:
        return _begin(import_, session)
    if import_.target == ImportTarget.SESSION:
        text = _within(delivery.output, *_container(session), import_.pk)
    else:
        text = _within(last_lines, *_container(session), TAIL_LINES)
    message = last_message(text)
    if message.is_last:
        return _store(import_, message)
    if text.rstrip().endswith("gone") and import_.target == ImportTarget.SESSION:
        return _end(import_, ImportState.FAILED, problem="The program ended without a result.")
    if import_.begun_at and import_.begun_at < clock.now() - TIME_LIMIT:
        return _end(import_, ImportState.FAILED, problem="It took too long.")
    _live(import_).exclude(progress=message.progress, fetched_bytes=message.fetched_bytes).update(
        progress=message.progress, fetched_bytes=message.fetched_bytes
    )
    return None


def _begin(import_: Import, session: Session) -> None:
    """Send the program; a host that is lost meanwhile has it sent again in another attempt."""
    try:
        job = job_of(import_, session)
    except credentials.UnreadableCredentialError as error:
        return _end(import_, ImportState.FAILED, problem=str(error))
    engine, container = _container(session)
    starts = import_.target == ImportTarget.SESSION
    async_to_sync(_delivered)(engine, container, import_.pk, job, starts=starts)
    now = clock.now()
    begun = _live(import_).update(state=ImportState.FETCHING, begun_at=now, begun_attempt=session.attempt)
    if not begun:  # it was cancelled meanwhile, and its program is told so once it is known to run
        Import.objects.filter(pk=import_.pk).update(begun_attempt=session.attempt)
    if import_.credential_id:
        ImportCredential.objects.filter(pk=import_.credential_id).update(last_used_at=now)
    return None


async def _delivered(engine: Engine, container: str, pk: str, job: dict[str, Any], *, starts: bool) -> None:
    async with asyncio.timeout(ENGINE_SECONDS):
        await delivery.deliver(engine, container, pk, job, starts=starts)


def job_of(import_: Import, session: Session) -> dict[str, Any]:
    """Return the job for the program, with the secret where there is one. Raises UnreadableCredentialError."""
    is_look = import_.target == ImportTarget.LOOK
    return {
        "id": import_.pk,
        "kind": import_.kind,
        "url": import_.url,
        "ref": import_.ref,
        "path": import_.path,
        "target": import_.tree or import_.directory,
        "is_look": is_look,
        "is_present": import_.origin_id is not None,
        "whole_history": import_.whole_history,
        "installs": import_.installs,
        "image": session.image.registry_digest or session.image.reference,
        "networks": list(settings.COMPUTE_IMPORT_NETWORKS),
        "credential": credentials.for_program(import_.credential) if import_.credential else None,
        "max_bytes": LOOK_BYTES if is_look else MAX_BYTES,
        "max_files": MAX_FILES,
        "stale": _stale(import_),
    }


def _stale(import_: Import) -> list[str]:
    """Return what imports that ended too abruptly to clean up may have left beside the target."""
    if import_.folder_id is None or import_.origin_id is not None:
        return []
    ended = Import.objects.filter(
        folder=import_.folder_id, state__in=(ImportState.FAILED, ImportState.CANCELLED), origin=None
    ).order_by("-ended_at")
    return [f".{directory}.{pk}" for pk, directory in ended.values_list("pk", "directory")[:STALE_NAMES]]


def _conclude(import_: Import, session: Session) -> None:
    """Store what the log of an ended session says, which is kept on its row."""
    message = last_message(session.log_tail)
    if message.is_last and import_.target != ImportTarget.SESSION:
        _store(import_, message)
    elif session.log_tail or session.ended_at is None or session.ended_at < clock.now() - timedelta(seconds=30):
        _end(import_, ImportState.FAILED, problem=f"Its session ended first. {session.detail}".strip())


def _store(import_: Import, message: Message) -> None:
    if message.problem:
        return _end(import_, ImportState.FAILED, problem=message.problem)
    if message.known_hosts and import_.credential_id:
        unknown = ImportCredential.objects.filter(pk=import_.credential_id, known_hosts="")
        unknown.update(known_hosts=message.known_hosts)
    return _end(import_, ImportState.DONE, found=message.found, **_place(import_, message.found))


def _place(import_: Import, found: Mapping[str, Any]) -> dict[str, str]:
    """Return `ref` and `path`, now that it is known where the name of the branch ends and the path begins."""
    whole, branch = f"{import_.ref}/{import_.path}", found.get("branch") or ""
    path = found.get("path") or ""
    if not import_.ref or not 0 < len(branch) <= MAX_REF_LENGTH or not f"{whole}/".startswith(f"{branch}/"):
        return {"path": path or import_.path}
    return {"ref": branch, "path": path or whole[len(branch) :].strip("/")}


def _end(import_: Import, state: ImportState, **fields: Any) -> None:
    with transaction.atomic():
        fields["problem"] = fields.get("problem", "")[:500]
        _live(import_).update(state=state, ended_at=clock.now(), progress="", **fields)


def _live(import_: Import) -> Any:
    return Import.objects.filter(pk=import_.pk).live()


def _to_stop() -> Any:
    recent = clock.now() - STOP_SPAN
    running = {"session__status": Status.RUNNING, "begun_attempt": F("session__attempt")}
    cancelled = Import.objects.filter(state=ImportState.CANCELLED, target=ImportTarget.SESSION, ended_at__gte=recent)
    return cancelled.filter(**running).select_related("session__host")


def _container(session: Session | None) -> tuple[Engine, str]:
    """Return the engine and name of the session's container. Raises HostUnreachableError."""
    if session is None:
        raise HostUnreachableError("There is no session.")
    return engine_of(session.host), container_name(session.pk, session.attempt)


def _within(function: Any, *arguments: Any) -> Any:
    """Return what an asynchronous function returns, within a time. Raises TimeoutError."""

    async def bounded() -> Any:
        async with asyncio.timeout(ENGINE_SECONDS):
            return await function(*arguments)

    return async_to_sync(bounded)()
