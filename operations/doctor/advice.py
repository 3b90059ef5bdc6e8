"""What to do, in terms of what runs the platform's services on this machine: `make up`, systemd or Docker Compose."""

from collections.abc import Callable
from typing import Final

from operations.doctor.findings import Finding, Verdict
from operations.services.base import ServiceControlError
from operations.services.compose import ComposeManager
from operations.services.local import local_manager
from operations.services.systemd import PREFIX, SystemdManager

START: Final = "`make up` starts it"


def manager_title() -> str:
    """Return the title of what runs the services here; "" where nothing does, as before `make up`."""
    try:
        return local_manager().title
    except ServiceControlError:
        return ""


def start(*services: str) -> str:
    """Return how these services are started here."""
    return _by_manager(
        lambda: f"`systemctl start {' '.join(f'{PREFIX}{each}' for each in services)}`",
        lambda: f"`docker compose up -d {' '.join(services)}`",
        START,
    )


def away(text: str, *services: str) -> Finding:
    """Return that services are away: a failure where something is to keep them running."""
    return Finding(Verdict.FAIL if manager_title() else Verdict.WARN, text, start(*services))


def migrate() -> str:
    """Return how migrations are applied here."""
    command = "`manage.py migrate` applies them"
    return _by_manager(lambda: command, lambda: command, "`make up` applies them")


def build_images() -> str:
    """Return what builds images here."""
    command = "`manage.py build_images`"
    return _by_manager(lambda: command, lambda: command, "`make images`")


def without_gpu() -> str:
    """Return what to do where sessions are to have GPUs and there are none."""
    text = "install NVIDIA's driver; COMPUTE_SIMULATED_GPUS simulates some for a trial"
    return _by_manager(lambda: text, lambda: text, "`make up` simulates a GPU; or set COMPUTE_SIMULATED_GPUS")


def add_root() -> str:
    """Return how a storage root is made here."""
    command = "`manage.py storageroots add` makes one"
    return _by_manager(lambda: command, lambda: command, "`make up` makes one, or `manage.py storageroots add`")


def _by_manager(systemd: Callable[[], str], compose: Callable[[], str], otherwise: str) -> str:
    known = {SystemdManager.title: systemd, ComposeManager.title: compose}
    return known.get(manager_title(), lambda: otherwise)()
