"""A real Jupyter server says when it was last used: asking is no use, a kernel that computes is."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from engine.containers import container_name
from hostworker.app_processes.jupyter import last_use
from hostworker.runtime.tests.runtime_worlds import MIB, DockerWorld, make_spec
from tests.fgpu_sessions import PYTHON_IMAGE, ensure_python_image
from tests.wait import until

pytestmark = pytest.mark.docker

TOKEN = "a-token-of-the-test"
SERVER = "exec jupyter lab --no-browser --ServerApp.ip=0.0.0.0 --ServerApp.port=8888 >/tmp/jupyter.log 2>&1"
NEW_KERNEL = f"curl -sX POST -H 'Authorization: token {TOKEN}' http://localhost:8888/api/kernels"
COMPUTE = """
import glob, os, queue
from jupyter_client import BlockingKernelClient
(file,) = glob.glob(os.path.expanduser("~/.local/share/jupyter/runtime/kernel-*.json"))
client = BlockingKernelClient(connection_file=file)
client.load_connection_file()
client.start_channels()
client.wait_for_ready()
while True:  # what is published before the kernel knows of the subscription is lost
    client.kernel_info()
    try:
        client.get_iopub_msg(timeout=1)
        break
    except queue.Empty:
        pass
sent = client.execute("import time; time.sleep(1000)")
told = None
while told != (sent, "execute_input"):
    message = client.get_iopub_msg()
    told = message["parent_header"].get("msg_id"), message["msg_type"]
open("/tmp/computes", "w").close()
"""


@pytest.fixture
def world() -> Iterator[DockerWorld]:
    ensure_python_image()
    made = DockerWorld(PYTHON_IMAGE)
    yield made
    made.clean_up()


def test_only_a_busy_kernel_counts_as_activity(world: DockerWorld) -> None:
    spec, runtime = make_spec(PYTHON_IMAGE, memory_bytes=1024 * MIB), world.runtime()
    runtime.create(spec)
    runtime.start(spec.session, 1)
    name = container_name(spec.session, 1)
    address = runtime.address(spec.session, 1)
    assert address

    def begin(*command: str) -> None:
        made = world.client.exec_create(name, list(command), user="work", environment={"JUPYTER_TOKEN": TOKEN})
        world.client.exec_start(made["Id"], detach=True)

    def asked() -> datetime | None:
        return asyncio.run(last_use(address, 8888, TOKEN, datetime.now(UTC)))

    begin("sh", "-c", SERVER)
    first = until(asked, seconds=120)
    assert until(asked) == until(asked) == first
    world.execute(spec.session, 1, NEW_KERNEL, user="work")
    begin("python", "-c", COMPUTE)
    until(lambda: world.execute(spec.session, 1, "ls /tmp/computes")[0] == 0)
    first, second = until(asked), until(asked)
    assert first
    assert second
    assert first < second, "it computes still"
