"""The set-up inside Django: services, Docker Engine, tables, static files, images and demo data, step by step."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final, TextIO

from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connections
from docker import DockerClient

from folders.errors import StorageUnavailableError
from folders.storage import paths as storage
from gpuplatform.bootstrap import helper, static_files
from gpuplatform.bootstrap.demo import demo
from hostaccess import pooler
from operations import embedded
from operations.doctor import driver_gpus as gpus
from operations.embedded_servers import redis_and_postgres as services
from operations.health import redis_probe
from operations.machine import docker_engine, system_packages
from operations.machine.progress import Progress, SetupError
from operations.supervisor.supervisor import SupervisedService
from resources import versions
from resources.images import background, builds
from resources.images.catalogue.catalog import CatalogError

SIMULATED_GPUS: Final = "1x8GiB"


def logins_file() -> Path:
    """Return the path of the file with the demo passwords."""
    return Path(settings.COMPUTE_VAR_DIR) / "demo-logins.json"


@contextmanager
def own_services(progress: Progress, *, take_over: bool, needs_redis: bool = True) -> Iterator[None]:
    """Have the embedded PostgreSQL and Redis up during the block, unless the settings name others.

    Without `needs_redis` the database alone is started and checked.
    """
    var_dir = Path(settings.COMPUTE_VAR_DIR)
    postgres, redis = not settings.DATABASE_URL, needs_redis and not settings.REDIS_URL
    with ExitStack() as running:
        with progress.step("Services"):
            wanted = services.running(var_dir, take_over=take_over, with_postgres=postgres, with_redis=redis)
            running.enter_context(wanted)
            if needs_redis and not redis and redis_probe.version(settings.CHANNEL_REDIS_URL) is None:
                raise SetupError("REDIS_URL does not answer; check it in .env")
            if not postgres and (problem := pooler.pooler_problem()):
                raise SetupError(problem)
        if postgres:
            connections["default"].settings_dict["OPTIONS"]["host"] = embedded.socket_folder(var_dir)
        progress.note(f"PostgreSQL: {'embedded' if postgres else 'DATABASE_URL'}")
        if needs_redis:
            progress.note(f"Redis: {'embedded' if redis else 'REDIS_URL'}")
        try:
            yield
        finally:
            connections.close_all()


def supervised_services() -> list[SupervisedService]:
    """Return the servers that `own_services` runs, for the supervisor."""
    return services.supervised(
        Path(settings.COMPUTE_VAR_DIR), with_postgres=not settings.DATABASE_URL, with_redis=not settings.REDIS_URL
    )


def prepare_machine(progress: Progress, *, for_tests: bool, runs_here: bool = True) -> None:
    """Have the Docker Engine and the programs that the platform, or its tests too, call; raise SetupError.

    `runs_here` is whether this very user will run the host worker.
    """
    with progress.step("Docker Engine"):
        log = Path(settings.COMPUTE_VAR_DIR) / "dockerd.log"
        docker_engine.ensure(settings.COMPUTE_DOCKER_URL, log, progress.note)
    helper.ensure(progress, is_required=runs_here)
    with progress.step("Programs of the operating system"):
        if for_tests or system_packages.can_install():
            system_packages.ensure(system_packages.FOR_IMAGES, progress.note)
        if for_tests:
            system_packages.ensure(system_packages.FOR_TESTS, progress.note)


def migrate_and_collect(progress: Progress) -> None:
    """Bring tables and static files up to date; raise SetupError where the tables are of a later version."""
    with progress.step("Tables of the database"):
        if errors := versions.check_version():
            raise SetupError(f"{errors[0].msg} {errors[0].hint}")
        call_command("migrate", interactive=False, verbosity=0)
    with progress.step("Static files"):
        static_files.collect(progress.note)


def fill(progress: Progress) -> None:
    """Bring tables, static files, demo data and the list of images up to date; raise SetupError."""
    migrate_and_collect(progress)
    with progress.step("Demo data"):
        demo.create(logins_file())
    with progress.step("Storage for data folders"):
        _register_storage(progress)
    with progress.step("Session images"):
        _enqueue_images(progress)


def build_images(progress: Progress, output: TextIO) -> None:
    """Build the session images and wait for them. A failed image is reported, and no more."""
    with progress.step("Building session images (several minutes the first time)"):
        try:
            call_command("build_images", stdout=output)
        except CommandError as error:
            progress.note(f"WARNING: {error}. Sessions can use the images that are there; `make images` tries again.")


def _enqueue_images(progress: Progress) -> None:
    """Register the images and queue what has to be built; the image builder does the rest while the platform runs."""
    folder = Path(settings.BASE_DIR) / "images"
    with closing(DockerClient(base_url=settings.COMPUTE_DOCKER_URL)) as engine:
        try:
            background.enqueue_catalog(engine, folder, os.environ, with_registries=False, report=progress.note)
        except CatalogError as error:
            raise SetupError(str(error)) from None
    waiting = [status for status in builds.statuses() if status.is_active]
    if waiting:
        text = ", ".join(str(status.image) for status in waiting)
        progress.note(
            f"built in the background while the platform runs: {text}; the launch page shows how far they are"
        )
    else:
        progress.note("up to date")


def _register_storage(progress: Progress) -> None:
    """Have a storage root for data folders. Without one everything else runs, so a failure is reported, and no more."""
    try:
        root = storage.register_default_root()
    except StorageUnavailableError as error:
        progress.note(f"WARNING: there are no data folders on this machine. {error}")
    else:
        progress.note(f"{root} at {root.path}" if root else "as set in the administration")


def simulated_gpus(progress: Progress) -> dict[str, str]:
    """Return what the host worker's environment needs so that a demo without a GPU has a simulated one."""
    models = gpus.names()
    if settings.COMPUTE_SIMULATED_GPUS:
        progress.note(f"SIMULATED GPUs as set: {settings.COMPUTE_SIMULATED_GPUS}")
    elif models:
        progress.note(f"GPUs: {', '.join(models)}")
    else:
        problem = gpus.problem()
        why = f"WARNING: the NVIDIA driver does not answer ({problem})" if problem else "no NVIDIA GPU here"
        progress.note(f"{why}, so the demo has a SIMULATED GPU: {SIMULATED_GPUS}")
        return {"COMPUTE_SIMULATED_GPUS": SIMULATED_GPUS}
    return {}
