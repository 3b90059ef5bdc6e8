"""A notebook keeps its kernel while its session is resized on the whole platform, and nvidia-smi follows."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from engine.containers import container_name
from tests.platform import Platform
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.docker, pytest.mark.long]

NOTEBOOK = {"image": "gpuplatform/python:3.11", "cpu": 1, "memory": "1GiB", "fgpu": "0.2"}  # of a GPU of 2 fGPU, 8 GiB
KERNEL = "nohup python -m ipykernel_launcher -f /tmp/kernel.json >/tmp/kernel.log 2>&1 &"
IN_KERNEL = """
import sys
from jupyter_client import BlockingKernelClient
client = BlockingKernelClient(connection_file="/tmp/kernel.json")
client.load_connection_file()
client.start_channels()
client.wait_for_ready(timeout=60)
client.execute_interactive(sys.argv[1], store_history=False, timeout=60)
"""
BEGIN = """
import ctypes, os
cuda, context, held = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), []
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not cuda.cuCtxSetCurrent(context)
def take(mib):
    memory = ctypes.c_uint64()
    code = cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(mib << 20))
    held.append(memory) if code == 0 else None
    return code
def give_back():
    return cuda.cuMemFree_v2(held.pop())
"""
OUT_OF_MEMORY = 2


class Notebook:
    """A running session with a kernel in it."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._session = client.post("sessions/", json=NOTEBOOK).raise_for_status().json()[0]
        self.path = f"sessions/{self._session['id']}/"
        assert until(lambda: self.shown()["status"] == "RUNNING")
        self._session = self.shown()

    def shown(self) -> dict[str, Any]:
        found: dict[str, Any] = self._client.get(self.path).raise_for_status().json()
        return found

    def inside(self, *command: str) -> str:
        """Return what a program prints in the session's container."""
        name = container_name(self._session["id"], self._session["attempt"])
        ran = ["docker", "exec", "--user", "work", name, *command]
        return subprocess.run(ran, check=True, capture_output=True, text=True).stdout.strip()

    def kernel(self, code: str) -> str:
        return self.inside("python", "-c", IN_KERNEL, code)

    def resize(self, **amounts: object) -> dict[str, Any]:
        """Return the session once its host has resized it, or refused to."""
        self._client.post(f"{self.path}resize/", json=amounts).raise_for_status()
        assert until(lambda: self.shown()["resizing"] is None)
        return self.shown()

    def gpu_memory(self) -> str:
        return self.inside("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader")

    def last_event(self) -> dict[str, Any]:
        found: dict[str, Any] = self._client.get(f"{self.path}events/").json()["results"][-1]
        return found


@pytest.fixture
def notebook(platform: Platform) -> Iterator[Notebook]:
    login = {"email": "user@example.org", "password": platform.passwords["user@example.org"]}
    token = httpx.post(f"{platform.url}/api/v1/auth/token/", json=login, timeout=SECONDS).json()["token"]
    headers = {"Authorization": f"Token {token}"}
    with httpx.Client(base_url=f"{platform.url}/api/v1/", headers=headers, timeout=SECONDS) as client:
        made = Notebook(client)
        yield made
        client.post(f"{made.path}terminate/").raise_for_status()


def test_notebook_keeps_its_kernel_while_its_share_changes(notebook: Notebook, platform: Platform) -> None:
    notebook.inside("sh", "-c", KERNEL)
    assert until(lambda: notebook.inside("sh", "-c", "cat /tmp/kernel.json || true"))
    pid = notebook.kernel(f"{BEGIN}\nprint(os.getpid())")
    assert notebook.gpu_memory() == "819 MiB"
    assert notebook.kernel("print(take(512), take(1024))") == f"0 {OUT_OF_MEMORY}"

    assert notebook.resize(fgpu="0.5")["fgpu"] == "0.5"
    assert notebook.gpu_memory() == "2048 MiB"
    assert notebook.kernel("print(take(1024), take(1024), os.getpid())") == f"0 {OUT_OF_MEMORY} {pid}"

    assert notebook.resize(fgpu="0.2")["fgpu"] == "0.5"  # 1.5 GiB are in use
    refused = notebook.last_event()
    assert (refused["reason"], "It uses 1.5" in refused["detail"]) == ("RESIZE_REFUSED", True)
    assert notebook.kernel("print(give_back())") == "0"
    assert notebook.resize(fgpu="0.2")["fgpu"] == "0.2"
    assert notebook.gpu_memory() == "819 MiB"
    assert notebook.kernel("print(take(1024), len(held), os.getpid())") == f"{OUT_OF_MEMORY} 1 {pid}"
    assert platform.held()["fgpu"] == 200

    assert notebook.resize(cpu=2, memory="2g")["cpu"] == 2
    assert notebook.inside("env", "--unset=OMP_NUM_THREADS", "nproc") == "2"
    assert notebook.inside("sh", "-c", "grep MemTotal /proc/meminfo").split()[1] == str(2 << 20)
    assert json.loads(notebook.kernel("print(len(os.sched_getaffinity(0)))")) == 2
    assert notebook.resize(cpu=1, memory="1g")["memory"] == 1 << 30
    assert notebook.inside("env", "--unset=OMP_NUM_THREADS", "nproc") == "1"
    assert notebook.kernel("print(os.getpid())") == pid
