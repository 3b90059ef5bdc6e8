"""The host's side of live resize: applies what is asked for to the running container. Idempotent.

The reconciler resumes it, until the session has what was asked for, or what it had before.
"""

import logging
from dataclasses import replace

from hostworker.containers import runner, specs
from hostworker.runtime_protocol import ContainerRuntimeError, ContainerSpec, ResizeError, Runtime
from sessions.models import Session
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize, StoredResize

logger = logging.getLogger(__name__)


def apply(runtime: Runtime, session_id: str, resize_id: str) -> None:
    """Resize the container of a running session, and free what it does not hold any more.

    Where it cannot be, the session has what it had before, with the cause on its timeline; after an error of the engine
    the resize stays for the reconciler.
    """
    with runner.container_lock(session_id):
        session = runner.running_session(session_id)
        stored = StoredResize.of(session) if session else None
        if session is None or stored is None or stored.id != resize_id:
            return
        try:
            spec = specs.spec_of(session)
            target, before = (_resized(spec, session, size) for size in (stored.target, stored.before))
            runtime.resizer.resize(target, before)
        except ResizeError as refused:
            resizing.finish(session_id, resize_id, str(refused)[:300])
        except ContainerRuntimeError as failure:
            logger.warning("session %s: resize interrupted, the reconciler will go on: %s", session_id, failure)
        else:
            resizing.finish(session_id, resize_id)


def _resized(spec: ContainerSpec, session: Session, size: SessionSize) -> ContainerSpec:
    """Return the container's spec with these amounts; of GPUs, a part of a single one changes."""
    gpus = spec.gpus
    if size.fgpu != session.fgpu:
        gpus = (replace(gpus[0], share_milli=size.fgpu),)
    return replace(spec, cpu=size.cpu, memory_bytes=size.memory, gpus=gpus)
