"""A platform with two hosts on this machine's engine, each process by itself: one is reached through its gateway."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from engine.containers import HOST_LABEL
from operations import embedded
from operations.embedded_servers import redis_and_postgres as services
from tests.containers import remove_containers
from tests.fleet import Fleet
from tests.migrated import fill_database
from tests.platform import ROOT, environment_of
from tests.ports import free_port
from tests.shell_image import ensure_shell_image
from tests.workers import end_arbiter

GROUPS: Final = ("near", "far")  # of one host each; the second one's sessions are reached through its gateway
PROCESSES: Final = ("web", "scheduler", "beat", "host", "far-host", "far-gateway", "ssh")
SET_UP: Final = """
from folders.storage import paths
from gpuplatform.bootstrap import installation
from gpuplatform.bootstrap.demo import demo
from tests.factories import make_group, make_image
paths.register_default_root()
make_group(name="near")
make_group(name="far")
demo.create(installation.logins_file())
make_image(reference={image!r})
"""


COLLECT: Final = "from gpuplatform.bootstrap import static_files; static_files.collect(print)"


@contextmanager
def two_host_fleet(folder: Path, tree: Path = ROOT, far_tree: Path | None = None) -> Iterator[Fleet]:
    """Run the platform whose code is in `tree` until the block ends, with its data in `folder`.

    With `far_tree` the far host has that code, and a second web server runs there: `far-web`.
    """
    var_dir = folder / "var"
    folder.chmod(0o755)  # PostgreSQL runs as another user
    image, settings = ensure_shell_image(), environment_of(var_dir)
    names = {group: f"{group}-{uuid4().hex[:8]}" for group in GROUPS}
    gateway = f"127.0.0.1:{free_port()}"
    settings |= {
        "COMPUTE_WEB_PROCESSES": "2",
        "COMPUTE_API_REQUESTS_PER_MINUTE": "0",
        "COMPUTE_SIMULATED_GPUS": "",
        "COMPUTE_HOST_CPU": "4",
        "COMPUTE_SANDBOX_POOL": "0",
        "COMPUTE_HOST_NAME": names["near"],
        "COMPUTE_HOST_GROUP": "near",
        "SECRET_KEY": "only-for-tests-" + "0" * 50,
        "DEBUG": "false",
    }
    far = {"COMPUTE_HOST_NAME": names["far"], "COMPUTE_HOST_GROUP": "far", "COMPUTE_GATEWAY_ADDRESS": gateway}
    with ExitStack() as stack:
        stack.enter_context(services.running(var_dir, take_over=True))
        for name in names.values():
            stack.callback(remove_containers, f"{HOST_LABEL}={name}")
        fleet = Fleet(settings, tree)
        stack.callback(fleet.stop_all)
        fleet.add("far-host", "hostworker", far_tree, **far)
        fleet.add("far-gateway", "gateway", far_tree, **far)
        fleet.add("far-web", "web", far_tree, **_of_far_web(folder, var_dir))
        if tree != ROOT or not fill_database(embedded.database_url(var_dir)):
            fleet.manage("migrate", "-v", "0")
        fleet.manage("shell", "-v", "0", "-c", SET_UP.format(image=image))
        names_of_web = ("web", "far-web") if far_tree else ("web",)
        for name in names_of_web:
            fleet.manage("shell", "-v", "0", "-c", COLLECT, beside=name)
        fleet.start(*{*PROCESSES, *names_of_web})
        fleet.wait_until_served()
        fleet.wait_for_hosts(len(GROUPS))
        fleet.image = image
        yield fleet
    end_arbiter(Path(settings["COMPUTE_ARBITER_DIR"]))


def _of_far_web(folder: Path, var_dir: Path) -> dict[str, str]:
    """Return the settings of a web server on another machine, which has static files of its own."""
    return {
        "COMPUTE_VAR_DIR": str(folder / "far"),
        "COMPUTE_HTTP_ADDRESS": f"127.0.0.1:{free_port()}",
        "DATABASE_URL": embedded.database_url(var_dir),
        "REDIS_URL": f"unix://{embedded.redis_socket(var_dir)}",
    }
