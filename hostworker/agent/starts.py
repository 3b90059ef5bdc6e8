"""Starts of this host's sessions: those whose image is here at once, the others as their pulls allow.

A pull may take half an hour. Pulls have threads of their own, so that however many of them wait for slow registries, a
session whose image is here starts at once; and owners take turns, so that nobody's pulls hold up another's.
"""

import logging
from functools import lru_cache, partial
from typing import Final

from django.db import close_old_connections, connections

from hostworker.app_processes import starter as app_starter
from hostworker.containers import runner
from hostworker.containers.fair_pool import FairPool
from hostworker.images import host_images
from hostworker.replicas import replica_watch
from hostworker.runtime_protocol import ContainerRuntimeError, Runtime
from sessions.lifecycle import Kind
from sessions.models import Session

logger = logging.getLogger(__name__)

MAX_CONCURRENT_PULLS: Final = 8  # of sessions of one host; the engine shares what two of them load
MAX_CONCURRENT_PULLS_OF_OWNER: Final = 4


@lru_cache
def _pulls() -> FairPool:
    """Return this process's threads for sessions whose image must be pulled."""
    return FairPool(MAX_CONCURRENT_PULLS, MAX_CONCURRENT_PULLS_OF_OWNER, "pull")


def begin(runtime: Runtime, session_id: str, attempt: int) -> None:
    """Start the attempt: before this returns if its image is here, else in the background. Safe to repeat."""
    session = runner.claim(session_id, attempt)
    if session is None:
        return
    try:
        is_here = bool(session.parked_attempt) or host_images.is_here(runtime, session.image)
    except ContainerRuntimeError as error:
        logger.warning("session %s: start interrupted, the reconciler will go on: %s", session_id, error)
        runner.give_up(session)
        return
    except BaseException:
        runner.give_up(session)
        raise
    if is_here:
        _bring_up(runtime, session, is_image_here=True)
    else:
        _pulls().submit(session.owner_id, partial(_pull_and_bring_up, runtime, session))


def end() -> None:
    """Drop the starts that wait for a pull and wait for the others; the next worker resumes what is left."""
    _pulls().end()
    _pulls.cache_clear()


def _bring_up(runtime: Runtime, session: Session, *, is_image_here: bool = False) -> None:
    runner.bring_up(runtime, session, is_image_here=is_image_here)
    if session.kind == Kind.REPLICA:
        replica_watch.look_soon(session.host_id)
    app_starter.warm_up(runtime, session)  # what its image wants started with it


def _pull_and_bring_up(runtime: Runtime, session: Session) -> None:
    try:
        close_old_connections()
        _bring_up(runtime, session)
    finally:
        connections.close_all()
