"""What to do, in terms of what runs the platform's services on this machine: `make up`, systemd or Docker Compose."""

from typing import Final

from operations.doctor.findings import Finding, Verdict
from operations.services.base import ServiceControlError
from operations.services.compose import ComposeManager
from operations.services.local import local_manager
from operations.services.supervisor import SupervisorManager
from operations.services.systemd import PREFIX, SystemdManager

BEFORE_MAKE_UP: Final = "`make up` starts it"


def manager_title() -> str:
    """Return the title of what runs the services here; "" where nothing does, as before `make up`."""
    try:
        return local_manager().title
    except ServiceControlError:
        return ""


def start(*services: str) -> str:
    """Return how these services are started here."""
    units = " ".join(f"{PREFIX}{each}" for each in services)
    commands = {
        SystemdManager.title: f"`systemctl start {units}`",
        ComposeManager.title: f"`docker compose up -d {' '.join(services)}`",
        SupervisorManager.title: ", ".join(f"`manage.py services start {each}`" for each in services),
    }
    return commands.get(manager_title(), BEFORE_MAKE_UP)


def away(text: str, *services: str) -> Finding:
    """Return that services are away: a failure where something is to keep them running."""
    return Finding(Verdict.FAIL if manager_title() else Verdict.WARN, text, start(*services))


def migrate() -> str:
    """Return how migrations are applied here."""
    return _said("`manage.py migrate` applies them", "`make up` applies them")


def build_images() -> str:
    """Return what builds images here."""
    return _said("`manage.py build_images`", "`make images`")


def without_gpu() -> str:
    """Return what to do where sessions are to have GPUs and there are none."""
    return _said(
        "install NVIDIA's driver; COMPUTE_SIMULATED_GPUS simulates some for a trial",
        "`make up` simulates a GPU; or set COMPUTE_SIMULATED_GPUS",
    )


def add_root() -> str:
    """Return how a storage root is made here."""
    return _said("`manage.py storageroots add` makes one", "`make up` makes one, or `manage.py storageroots add`")


def _said(installed: str, tried: str) -> str:
    """Return the advice for an installation that systemd or Compose runs, else that for `make up`."""
    return installed if manager_title() in (SystemdManager.title, ComposeManager.title) else tried
