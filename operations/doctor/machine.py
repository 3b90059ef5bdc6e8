"""Read-only checks of the machine and the installation: one line each with the result and advice."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Collection
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import psycopg
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone
from docker.errors import DockerException
from redis.exceptions import RedisError
from requests.exceptions import RequestException

from folders.models import HostRoot, StorageRoot
from folders.storage import roots
from hostworker.enforcement.figures import has_lxcfs
from hostworker.runtime.container_config import NETWORK
from hostworker.runtime.docker.quotas import DOCKER_ROOT, quota_problem, storage_root
from hostworker.runtime.factory import firewall_problem, is_engine_here
from hostworker.runtime.seccomp import problem as seccomp_problem
from hostworker.runtime.seccomp import profile_for
from hostworker.runtime.user_namespaces import is_remapped
from messaging import clients
from operations.doctor import advice
from operations.doctor import gpus as doctor_gpus
from operations.doctor import kernel as doctor_kernel
from operations.doctor import services as doctor_services
from operations.doctor.clusters import networks_of_clusters
from operations.doctor.findings import Finding, Verdict
from operations.doctor.services import docker_client
from operations.health import redis_probe
from operations.machine import docker_engine, system_packages
from operations.machine.progress import SetupError
from resources.amounts.units import GIB, size_text
from resources.images import builds
from resources.models import Image

OLDEST_PYTHON: Final = (3, 11)
SECRET_LENGTH: Final = 50
SCARCE_DISK: Final = 10 * GIB
NO_DISK: Final = 2 * GIB
CLOCK_LIMIT: Final = timedelta(seconds=2)
ANSWER_SECONDS: Final = 3
UNWALLED: Final = (
    "sessions reach what this host binds to all interfaces, and private networks even if their group denies them"
)


def examine(names: Collection[str] = ()) -> list[tuple[str, Finding]]:
    """Run these checks or all, in an order in which the first failure explains those that follow; never raises."""
    asks_in_vain = BY_DATABASE if _database_problem() else frozenset()
    found = dict.fromkeys(asks_in_vain, Finding(Verdict.WARN, "unknown, since the database does not answer"))
    if settings.COMPUTE_HOST_KEY:
        found |= dict.fromkeys(ELSEWHERE, Finding(Verdict.OK, "not on this host, which has joined; ask the web server"))
    asked = names or CHECKS
    return [(name, found.get(name) or _guarded(check)) for name, check in CHECKS.items() if name in asked]


def _guarded(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except DatabaseError as error:
        return Finding(Verdict.FAIL, f"the database refuses: {_one_line(error)}", advice.migrate())
    except (DockerException, RequestException):
        return Finding(Verdict.WARN, "unknown, since the Docker Engine does not answer")
    except RedisError:
        return Finding(Verdict.WARN, "unknown, since Redis does not answer")
    except SetupError as problem:
        return Finding(Verdict.FAIL, str(problem))
    except OSError as error:  # of a file system that does not answer, for one; the other checks matter all the more
        return Finding(Verdict.WARN, f"unknown: {_one_line(error)}")


def _database_problem() -> str:
    """Return why the database does not respond, or "". One direct attempt, because the pool would retry for long."""
    parameters = {**connection.get_connection_params(), "connect_timeout": ANSWER_SECONDS}
    parameters.pop("pool", None)
    try:
        psycopg.connect(**parameters).close()
    except psycopg.Error as error:
        return _one_line(error)
    return ""


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return Finding(Verdict.FAIL, version, "install Python 3.11 or newer, remove .venv and run `make ready`")
    if sys.prefix == sys.base_prefix:
        return Finding(
            Verdict.WARN, f"{version}, not in a virtual environment", "run .venv/bin/python manage.py doctor"
        )
    return Finding(Verdict.OK, f"{version} in {sys.prefix}")


def _front_end() -> Finding:
    missing = [str(folder) for _, folder in _vendor_folders() if not folder.is_dir()]
    if missing:
        return Finding(Verdict.FAIL, f"{missing[0]} is missing", "`make ready` installs the front-end packages")
    node = shutil.which("node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout if node else ""
    return Finding(Verdict.OK, f"packages installed; Node {version.strip() or 'from PyPI'}")


def _vendor_folders() -> list[tuple[str, Path]]:
    return [(entry[0], Path(entry[1])) for entry in settings.STATICFILES_DIRS if isinstance(entry, tuple)]


def _env_file() -> Finding:
    path = Path(settings.BASE_DIR) / ".env"
    if not path.exists():
        return Finding(Verdict.WARN, "no .env; the settings come from the environment alone", "`make ready` writes one")
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    is_installed = status.st_uid == 0 and status.st_gid != 0  # root's, for the group of the platform's user alone
    right = 0o640 if is_installed else 0o600
    if mode & 0o077 & ~right:
        return Finding(Verdict.WARN, f"{path} can be read by others", f"chmod {right:o} {path}")
    return Finding(Verdict.OK, str(path))


def _secret_key() -> Finding:
    if settings.COMPUTE_HOST_KEY:
        return Finding(Verdict.OK, "this host has joined, and needs none")
    if len(settings.SECRET_KEY) < SECRET_LENGTH or len(set(settings.SECRET_KEY)) < 5:
        return Finding(Verdict.FAIL, "SECRET_KEY is too short or too plain", "put 50 random characters there")
    return Finding(Verdict.OK, "long enough")


def _database() -> Finding:
    kind = "DATABASE_URL" if settings.DATABASE_URL else "embedded"
    problem = _database_problem()
    if problem and settings.DATABASE_URL:
        return Finding(Verdict.FAIL, f"{kind} does not answer: {problem}", "check DATABASE_URL in .env")
    if problem:
        hint = _restart_advice("postgresql", "postgres/log")
        return Finding(Verdict.WARN, "embedded PostgreSQL is not running", hint)
    if settings.COMPUTE_HOST_KEY:  # a host that has joined may not read which migrations are applied
        return Finding(Verdict.OK, f"{kind}{_primary_database()}, with this host's own role")
    executor = MigrationExecutor(connection)
    waiting = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if waiting:
        return Finding(Verdict.WARN, f"{kind}: {len(waiting)} migrations are not applied", advice.migrate())
    return Finding(Verdict.OK, f"{kind}{_primary_database()}, all migrations applied")


def _primary_database() -> str:
    """Return which server takes writes, where DATABASE_URL names several."""
    if "," not in str(connection.settings_dict["HOST"]):
        return ""
    connection.ensure_connection()
    info = connection.connection.info
    return f", primary {info.host}:{info.port}"


def _redis() -> Finding:
    version = redis_probe.version(settings.CHANNEL_REDIS_URL)
    if version:
        primary = clients.primary_of(settings.CHANNEL_REDIS_URL)
        kind = "REDIS_URL" if settings.REDIS_URL else "embedded"
        return Finding(Verdict.OK, f"{kind}{f', primary {primary}' if primary else ''}, version {version}")
    if settings.REDIS_URL:
        return Finding(Verdict.FAIL, "REDIS_URL does not answer", "check REDIS_URL in .env")
    return Finding(Verdict.WARN, "embedded Redis is not running", _restart_advice("redis", "redis/redis.log"))


def _restart_advice(server: str, log: str) -> str:
    """Return what to do about an embedded server that is down: `make up` keeps it running, unless it cannot."""
    return f"{advice.start(server)}; why it ended is in {Path(settings.COMPUTE_VAR_DIR) / log}"


def _docker() -> Finding:
    engine = docker_engine.examine(settings.COMPUTE_DOCKER_URL)
    if not engine.problem:
        return Finding(Verdict.OK, engine.version)
    is_default = settings.COMPUTE_DOCKER_URL == docker_engine.DEFAULT_URL
    if is_default and not engine.version and system_packages.can_install():
        return Finding(Verdict.WARN, engine.problem, "`make up` installs and starts one")
    return Finding(Verdict.FAIL, engine.problem, "install docker.io and iptables, or set COMPUTE_DOCKER_URL")


def _docker_network() -> Finding:
    with closing(docker_client()) as client:
        found: list[dict[str, Any]] = client.networks(names=[NETWORK])
    exact = [network for network in found if network["Name"] == NETWORK]
    if not exact:
        return Finding(Verdict.OK, f"{NETWORK} is made with the first session")
    options = exact[0]["Options"] or {}
    if options.get("com.docker.network.bridge.enable_icc") != "false":
        return Finding(Verdict.FAIL, f"{NETWORK} lets sessions reach each other", f"docker network rm {NETWORK}")
    return Finding(Verdict.OK, f"{NETWORK}, without traffic between sessions")


def _iptables() -> Finding:
    if system_packages.program("iptables"):
        return Finding(Verdict.OK, "found")
    return Finding(Verdict.WARN, "not found; the Docker Engine needs it", "apt-get install iptables")


def _firewall() -> Finding:
    if not settings.COMPUTE_FIREWALL:
        text = f"off: {UNWALLED}"
        return Finding(Verdict.WARN, text, "COMPUTE_FIREWALL=true, unless rules of your own keep them away")
    if problem := firewall_problem():
        text = f"{UNWALLED}: {problem}"
        return Finding(
            Verdict.WARN, text, "run the host worker as root, or let it have its helper, and install iptables"
        )
    return Finding(Verdict.OK, "the host worker keeps sessions away from this host's own services")


def _disk() -> Finding:
    folders = [settings.BASE_DIR, settings.COMPUTE_VAR_DIR, *([_docker_root()] if is_engine_here() else [])]
    places = {str(folder): shutil.disk_usage(folder).free for folder in folders if Path(folder).is_dir()}
    place, free = min(places.items(), key=lambda item: item[1])
    text = f"{size_text(free // GIB * GIB)} free at {place}"
    if free < NO_DISK:
        return Finding(Verdict.FAIL, text, "images and sessions need room")
    return Finding(Verdict.OK if free >= SCARCE_DISK else Verdict.WARN, text)


def _docker_root() -> Path:
    """Return where the engine keeps images and containers."""
    try:
        with closing(docker_client()) as client:
            return storage_root(client.info())
    except (DockerException, RequestException):
        return DOCKER_ROOT


def _session_disks() -> Finding:
    with closing(docker_client()) as client:
        problem = quota_problem(client.info(), is_here=is_engine_here())
    if problem:
        return Finding(
            Verdict.OK, f"what sessions write is watched, and ends them beyond their policy's limit: {problem}"
        )
    return Finding(Verdict.OK, "the engine bounds what sessions write")


def _kernel_calls() -> Finding:
    with closing(docker_client()) as client:
        info = client.info()
    if problem := seccomp_problem(info):
        hint = "a kernel with CONFIG_SECCOMP_FILTER, and an engine without `seccomp-profile: unconfined`"
        return Finding(Verdict.WARN, f"sessions may make every system call: {problem}", hint)
    profile = "the platform's profile" if profile_for(info) else "the profile that the engine was configured with"
    users = "root in them is nobody on this host" if is_remapped(info) else "their users are the host's"
    return Finding(Verdict.OK, f"sessions' system calls are filtered by {profile}; {users}")


def _figures() -> Finding:
    if not is_engine_here():
        text = "programs in sessions count this host's CPUs and memory: the container engine is on another machine"
        return Finding(Verdict.WARN, text)
    pinned = "each session is pinned to CPUs of its own" if settings.COMPUTE_PIN_CPUS else "CPUs are not pinned"
    if has_lxcfs():
        return Finding(Verdict.OK, f"{pinned}; /proc by lxcfs")
    return Finding(Verdict.OK, f"{pinned}; memory and CPUs in /proc by the host worker, which lxcfs would do, too")


def _images() -> Finding:
    references = list(Image.objects.filter(is_enabled=True, owner=None).values_list("reference", flat=True))
    has_joined = bool(settings.COMPUTE_HOST_KEY)  # such a host builds for itself, and knows of no other builds
    command = "`manage.py build_images`" if has_joined else advice.build_images()
    if not references:
        return Finding(Verdict.WARN, "none is registered", f"{advice.build_images()} on the web server builds them")
    statuses = [] if has_joined else builds.statuses()
    if failed := [str(status.image) for status in statuses if not status.is_active]:
        hint = "see why in the administration under Images, and build them again there"
        return Finding(Verdict.WARN, f"could not be built: {', '.join(failed)}", hint)
    if statuses:
        hint = f"the running platform builds them, or {advice.build_images()}"
        return Finding(Verdict.WARN, "; ".join(f"{status.image} {status.text}" for status in statuses), hint)
    with closing(docker_client()) as client:
        tags = {tag for image in client.images() for tag in image.get("RepoTags") or []}
    there = sum(reference in tags for reference in references)
    text = f"{there} of {len(references)} are on this host; the others are pulled when first used"
    return Finding(Verdict.OK if there else Verdict.WARN, text, "" if there else f"{command} builds them")


def _storage() -> Finding:
    rows = list(HostRoot.objects.filter(is_present=True).select_related("host", "root"))
    if problems := roots.warnings():
        return Finding(Verdict.WARN, " ".join(problems), "mount the file system there, or see `manage.py storageroots`")
    if not rows:
        hint = advice.start("host") if StorageRoot.objects.exists() else advice.add_root()
        return Finding(Verdict.WARN, "no host has said yet that it has a storage root", hint)
    return Finding(Verdict.OK, "; ".join(f"{row}: quotas {row.get_quota_support_display()}" for row in rows))


def _clock() -> Finding:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        ((database_time,),) = cursor.fetchall()
    off = abs(timezone.now() - database_time)
    if off > CLOCK_LIMIT:
        return Finding(Verdict.FAIL, f"{off.total_seconds():.0f} s off the database's clock", "synchronise with NTP")
    return Finding(Verdict.OK, f"agrees with the database's; {timezone.now():%Y-%m-%d %H:%M} UTC")


def _user() -> Finding:
    root = os.geteuid() == 0
    return Finding(Verdict.OK, "root: missing programs are installed" if root else "not root: nothing is installed")


CHECKS: Final[dict[str, Callable[[], Finding]]] = {
    "user": _user,
    "Python": _python,
    "front end": _front_end,
    ".env": _env_file,
    "SECRET_KEY": _secret_key,
    "disk": _disk,
    "Docker": _docker,
    "iptables": _iptables,
    "firewall": _firewall,
    "networks of clusters": networks_of_clusters,
    "network": _docker_network,
    "session disks": _session_disks,
    "system calls": _kernel_calls,
    "shared limits": doctor_kernel.shared_limits,
    "cgroups": doctor_kernel.cgroups,
    "open files": doctor_kernel.open_files,
    "GPUs": doctor_gpus.models,
    "accelerators": lambda: doctor_gpus.accelerators(is_database_there=not _database_problem()),
    "GPU links": doctor_gpus.connections,
    "GPU access": doctor_gpus.access,
    "GPU nodes": doctor_gpus.nodes,
    "fGPU": lambda: doctor_gpus.division(is_database_there=not _database_problem()),
    "GPU time": doctor_gpus.turns,
    "figures": _figures,
    "database": _database,
    "Redis": _redis,
    "settings": doctor_services.settings_are_valid,
    "web": doctor_services.web,
    "scheduler": doctor_services.scheduler,
    "SSH": doctor_services.ssh,
    "gateway": doctor_services.gateway,
    "neighbours": doctor_services.neighbours,
    "images": _images,
    "hosts": doctor_services.hosts,
    "storage": _storage,
    "clock": _clock,
}
ELSEWHERE: Final = frozenset({"web", "scheduler", "SSH"})  # processes of the web server
BY_DATABASE: Final = frozenset({"images", "hosts", "neighbours", "storage", "clock", "networks of clusters"})
