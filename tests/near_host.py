"""A web process and a real host worker on this machine, for tests that need no more of the platform."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

from django.conf import settings

from engine.containers import HOST_LABEL, INSTALLATION_LABEL
from resources.models import Installation
from tests.containers import remove_containers
from tests.fgpu_sessions import ensure_python_image
from tests.live import LiveServer, serving
from tests.two_hosts import QUIET, REAL
from tests.workers import host_worker, wait_until_ready


@contextmanager
def near_host(log: Path) -> Iterator[LiveServer]:
    """Serve the test's database, with this machine as a host."""
    name = settings.COMPUTE_HOST_NAME
    ensure_python_image()
    with ExitStack() as stack:
        own = f"{INSTALLATION_LABEL}={Installation.current_key()}", f"{HOST_LABEL}={name}"
        stack.callback(remove_containers, *own)
        group = f"near-{uuid4().hex[:8]}"
        stack.enter_context(host_worker(name, COMPUTE_HOST_GROUP=group, **QUIET))
        running = stack.enter_context(serving(log, COMPUTE_RUNTIME=REAL))
        wait_until_ready(name)
        yield running
