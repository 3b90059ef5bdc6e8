"""`gpuplatform run` against a real host worker: output, exit code, queue, and a connection that breaks half-way."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from accounts.models import ApiToken
from engine.containers import HOST_LABEL
from gpuplatform_client import Client
from gpuplatform_client.tests.program import RunningProgram
from resources.amounts.units import GIB
from resources.gpus.discovery import Machine
from resources.hosts.services import register_host
from scheduler.cycle.passes import run_pass
from sessions.lifecycle import Status
from sessions.models import Session
from tests.containers import remove_containers
from tests.factories import make_group, make_image, make_user
from tests.guide import USER
from tests.images import ensure_images
from tests.live import ROOT, serving
from tests.platform import Platform, running_platform
from tests.relay import Relay, relaying
from tests.shell_image import ensure_shell_image
from tests.wait import until
from tests.workers import host_worker, wait_until_ready

REAL = "hostworker.runtime.docker.DockerRuntime"
# Prints until it is let go on, so that the connection can be broken between lines that came and lines that come.
COUNT = "for i in $(seq 1 500); do echo line $i; done; while ! test -e /tmp/go; do :; done; seq 501 1000; exit 7"
# A line of numbers fitted by gradient descent: PyTorch, no data of anybody's.
TRAIN = """
import os
import torch
torch.manual_seed(0)
x = torch.linspace(-1, 1, 256).unsqueeze(1)
net = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
for epoch in range(300):
    while epoch == 150 and not os.path.exists("/tmp/go"):
        pass
    loss = torch.nn.functional.mse_loss(net(x), torch.sin(3 * x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("epoch", epoch, flush=True)
print("good" if loss.item() < 0.01 else f"bad: {loss.item()}")
"""


@contextmanager
def host_and_web(folder: Path) -> Iterator[Relay]:
    """A host with two cores that takes sessions, and the web process behind a relay."""
    name = f"client-{uuid4().hex[:8]}"
    register_host(name, Machine(cpu=2, memory=4 * GIB, devices=()), make_group().name)
    with ExitStack() as stack:
        stack.callback(remove_containers, f"{HOST_LABEL}={name}")
        web = stack.enter_context(serving(folder / "web.log", COMPUTE_HOST_NAME=name, COMPUTE_RUNTIME=REAL))
        stack.enter_context(host_worker(name, COMPUTE_SANDBOX_POOL="0", COMPUTE_SIMULATED_GPUS=""))
        wait_until_ready(name)
        yield stack.enter_context(relaying(web.port))


@pytest.mark.docker
@pytest.mark.django_db(transaction=True)
def test_output_is_whole_after_the_connection_breaks(tmp_path: Path) -> None:
    with host_and_web(tmp_path) as relay:
        image = make_image(reference=ensure_shell_image())
        token = ApiToken.objects.issue(make_user())[1]
        common = ("--image", image.reference, "--memory", "256m", "--shared-memory", "16m")
        held = ("run", *common, "--cpu", "2", "--", "sleep", "1000")
        counted = ("run", *common, "--", "bash", "-c", COUNT)
        with RunningProgram(relay.url, token, tmp_path, *held) as holder:
            until(lambda: run_pass() == 1)
            until(lambda: Session.objects.filter(status=Status.RUNNING).exists())
            with RunningProgram(relay.url, token, tmp_path, *counted) as counting:
                until(lambda: Session.objects.filter(status=Status.PENDING).exists())
                run_pass()
                until(lambda: any("PENDING: " in line and "CPU" in line for line in counting.messages))
                holder.process.send_signal(signal.SIGINT)
                assert holder.wait() == 130
                until(lambda: run_pass() == 1)
                until(lambda: counting.has("line 500"))
                relay.cut()
                session = Session.objects.get(status=Status.RUNNING)
                subprocess.run(["docker", "exec", session.container_id, "bash", "-c", ": > /tmp/go"], check=True)
                assert counting.wait() == 7
    assert counting.lines == [*(f"line {number}\n" for number in range(1, 501)), *(f"{n}\n" for n in range(501, 1001))]


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    ensure_images(["PyTorch 2.13"])
    with running_platform(ROOT / "var" / "test-client") as running:
        yield running


@pytest.mark.long
@pytest.mark.docker
def test_training_script_runs_end_to_end(platform: Platform, tmp_path: Path) -> None:
    """As README shows it, with the connection breaking after half of the epochs."""
    platform.rows("UPDATE resources_image SET is_enabled = true WHERE environment = 'PyTorch' RETURNING id")
    (tmp_path / "train.py").write_text(TRAIN)
    port = urlsplit(platform.url).port
    assert port
    with relaying(port) as relay:
        with Client(relay.url) as client:
            token = client.login(USER, platform.passwords[USER]).token
            until(lambda: any(image.environment == "PyTorch" for image in client.images()))
            client.create_folder("code")
        for words in (["cp", str(tmp_path / "train.py"), "folder://code/"], ["folders", "ls", "code"]):
            with RunningProgram(relay.url, token, tmp_path, *words) as program:
                assert program.wait() == 0
        demands = ("--image", "pytorch", "--fgpu", "0.5", "--memory", "4g", "--mount", "code")
        with RunningProgram(relay.url, token, tmp_path, "run", *demands, "--", "python", "code/train.py") as training:
            until(lambda: training.has("epoch 149"))
            relay.cut()
            [session] = platform.rows("SELECT container_id FROM compute_session WHERE status = 'RUNNING'")
            subprocess.run(["docker", "exec", session["container_id"], "touch", "/tmp/go"], check=True)
            assert training.wait() == 0, training.messages
    assert training.lines == [*(f"epoch {number}\n" for number in range(300)), "good\n"]
