"""The runtime that the settings name, and its enforcer; the only module of this package that knows Django."""

import os
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

from django.conf import settings
from django.utils.module_loading import import_string
from docker import APIClient
from docker.errors import DockerException
from requests.exceptions import RequestException

from engine import products
from engine.containers import HOST_LABEL
from hostworker.enforcement.arbiter import Arbiter
from hostworker.enforcement.arbiter_folder import ArbiterFolder, folder_for
from hostworker.enforcement.enforcer import Enforcer
from hostworker.enforcement.programs import Programs
from hostworker.privileged.helper import HelperPrivileges
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.runtime.gpu_access import accelerators_here
from hostworker.runtime.sandboxes import image as sandbox_image
from hostworker.runtime_protocol import Runtime
from resources.accelerators.discovery import AcceleratorSource, Found
from resources.amounts.units import bytes_from
from resources.models import Installation

CONFIGURATION: Final = "/etc/gpuplatform"  # of installed packages, with the host's credentials


def get_runtime() -> Runtime:
    """Return this process's runtime for COMPUTE_RUNTIME, made once; any class with the same arguments will do."""
    return _make(
        settings.COMPUTE_RUNTIME,
        Installation.current_key(),
        settings.COMPUTE_HOST_NAME,
        settings.COMPUTE_DOCKER_URL,
        settings.COMPUTE_SANDBOX_POOL,
    )


def engine_id() -> str:
    """Return the id of the container engine, "" where it does not answer."""
    return str(_engine_info().get("ID", ""))


def engine_problem() -> str:
    """Return why the container engine cannot run sessions, "" where it can or does not answer."""
    try:
        with closing(APIClient(base_url=settings.COMPUTE_DOCKER_URL)) as client:
            return products.problem(client.version())
    except (DockerException, RequestException, OSError):
        return ""


def get_enforcer() -> Enforcer:
    """Return the enforcer of this host, made once; it writes nothing before the first session needs it."""
    folder, host = Path(settings.COMPUTE_FGPU_DIR), settings.COMPUTE_HOST_NAME
    helped = os.geteuid() != 0 and settings.COMPUTE_PRIVILEGED_HELPER
    helper_url = settings.COMPUTE_DOCKER_URL if helped else ""
    return _make_enforcer(
        folder,
        host,
        settings.COMPUTE_GPU_CONTEXT_MEMORY,
        settings.COMPUTE_MPS_DIR,
        helper_url,
        is_engine_here(),
        settings.COMPUTE_PIN_CPUS,
        settings.COMPUTE_ARBITER_DIR,
        tuple(settings.COMPUTE_CDI_DIRS),
    )


def get_privileges() -> HostPrivileges:
    """Return what does on this host what needs root, made once: this process, or its helper where it is not root."""
    return get_enforcer().privileges


def is_engine_here() -> bool:
    """Return whether the container engine is on this machine."""
    return str(settings.COMPUTE_DOCKER_URL).startswith("unix://")


def firewall_problem() -> str:
    """Return why no rules can keep sessions from this host's own services, or "" where they can."""
    if not is_engine_here():
        return "the container engine is on another machine"
    return get_privileges().firewall_problem()


def cluster_problem() -> str:
    """Return why no network of a cluster can be on this host, or "" where it can."""
    if not settings.COMPUTE_FIREWALL:
        return "the rules of the packet filter are off (COMPUTE_FIREWALL)"
    if not sandbox_image.is_possible():
        return "sessions have no networks of their own on this machine"
    return firewall_problem() or get_privileges().clusters_problem()


def find_accelerators() -> Found:
    """Return the accelerators of this host beside NVIDIA's, by all that finds them."""
    return accelerators_here(get_enforcer().accelerators, _engine_info())


def find_accelerators_again() -> Found | None:
    """As `find_accelerators`; None where the engine does not answer, which knows some of them alone."""
    info = _engine_info()
    return accelerators_here(get_enforcer().accelerators, info) if info else None


def _engine_info() -> dict[str, Any]:
    """Return what the container engine says of itself, {} where it does not answer."""
    try:
        with closing(APIClient(base_url=settings.COMPUTE_DOCKER_URL)) as client:
            return dict(client.info())
    except (DockerException, RequestException, OSError):
        return {}


def _protected(folder: Path) -> tuple[Path, ...]:
    """Return the paths of which no container gets anything for its devices' sake: the platform's, and the engine's."""
    of_engine = str(settings.COMPUTE_DOCKER_URL).removeprefix("unix://") if is_engine_here() else CONFIGURATION
    own = (settings.BASE_DIR, settings.COMPUTE_VAR_DIR, settings.COMPUTE_STORAGE_DIR, settings.COMPUTE_BACKUP_DIR)
    return tuple(map(Path, (*own, folder, CONFIGURATION, of_engine)))


@lru_cache
def _make(class_path: str, installation: str, host: str, engine_url: str, sandboxes: int) -> Runtime:
    runtime = import_string(class_path)
    made = runtime(
        installation=installation, host=host, engine_url=engine_url, enforcer=get_enforcer(), sandboxes=sandboxes
    )
    return cast(Runtime, made)


@lru_cache
def _make_enforcer(
    folder: Path,
    host: str,
    context_memory: str,
    mps_folder: str,
    helper_url: str,
    sees_files: bool,
    pins_cpus: bool,
    arbiter_folder: str,
    cdi_folders: tuple[str, ...],
) -> Enforcer:
    programs = Programs(build=Path(settings.BASE_DIR) / "fgpu" / "build", store=folder / "programs")
    return Enforcer(
        programs,
        folder / host,
        context_memory=bytes_from(context_memory),
        mps_folder=Path(mps_folder) if mps_folder else None,
        privileges=HelperPrivileges(helper_url, {HOST_LABEL: host}, folder) if helper_url else HostPrivileges(),
        sees_files=sees_files,
        pins_cpus=pins_cpus,
        accelerators=AcceleratorSource(
            host_name=host, cdi_folders=tuple(map(Path, cdi_folders)), protected=_protected(folder)
        ),
        arbiter=Arbiter(programs, ArbiterFolder(folder_for(arbiter_folder, folder / host))),
    )
