"""Sessions with shares of simulated GPUs, on a host worker and an image of their own kind, for tests."""

import io
import subprocess
import sys
import tarfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import docker

from accounts.models import User
from resources.amounts.units import MIB, milli_fgpu_from
from resources.models import Host, Image, ResourceGroup
from scheduler.cycle.passes import run_pass
from sessions.launching import services
from sessions.lifecycle import FINAL, Status
from sessions.models import Session
from tests import factories
from tests.exclusive import exclusive
from tests.execs import output_of
from tests.images import ensure_images
from tests.wait import until

ROOT = Path(__file__).resolve().parent.parent
PYTHON_IMAGE: Final = "gpuplatform/python:3.11"
PROBE: Final = ROOT / "fgpu" / "build" / "test" / "probe"  # runs CUDA commands from stdin, one answer per line
OUT_OF_MEMORY: Final = "2"  # CUDA's codes
NOT_READY: Final = "802"


def ensure_hook_built() -> None:
    """Have the hook, the simulated driver and the test program; up to date takes no time."""
    command = ["make", "-s", "-C", str(ROOT / "fgpu"), f"PYTHON={sys.executable}", "all", str(PROBE)]
    with exclusive("fgpu-build"):
        subprocess.run(command, check=True)


def ensure_python_image() -> None:
    """Have the image of Python 3.11 from the catalogue; up to date takes a second."""
    ensure_images(["Python 3.11"])


@dataclass(frozen=True)
class InContainer:
    """A session's container, spoken to as its user would: programs run as `work`, or through sudo."""

    session: Session

    def run(self, command: str, user: str = "work") -> tuple[int, str]:
        """Return exit code and output of a shell command."""
        with closing(docker.from_env()) as client:
            return output_of(client.api, f"gp-{self.session.pk}-{self.session.attempt}", command, user)

    def total_memory(self, prefix: str = "") -> list[int]:
        """Return what nvidia-smi shows as each device's memory, in MiB."""
        code, output = self.run(f"{prefix} nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits")
        assert code == 0, output
        return [int(line) for line in output.split()]

    def put(self, program: Path) -> str:
        """Copy a program of this machine into /tmp; return its path there."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.add(program, arcname=program.name)
        client = docker.from_env()
        container = client.containers.get(f"gp-{self.session.pk}-{self.session.attempt}")
        assert container.put_archive("/tmp", archive.getvalue())
        client.close()
        return f"/tmp/{program.name}"

    def cuda(self, *commands: str, prefix: str = "") -> list[str]:
        """Return the first word that the test program answers to each command."""
        program = self.put(PROBE)
        lines = "\\n".join(commands)
        _, output = self.run(f"printf '{lines}\\n' | {prefix} {program}")
        return [line.split()[0] for line in output.splitlines()]

    def hold(self, size: int, prefix: str = "") -> int:
        """Start a process that holds GPU memory until it is killed; return its pid in the container."""
        program = self.put(PROBE)
        feed = f"printf 'init\\nenter 0\\nalloc plain {size} 0\\n'; sleep 1000"
        _, output = self.run(
            f"mkfifo /tmp/in$$; : > /tmp/out$$; ({feed}) > /tmp/in$$ & "
            f"{prefix} {program} < /tmp/in$$ > /tmp/out$$ 2>&1 & echo $!; "
            f"while [ $(wc -l < /tmp/out$$) -lt 3 ]; do sleep 0.02; done; cat /tmp/out$$"
        )
        pid, *_ = output.split()
        assert output.splitlines()[1:] == ["0", "0", "0"], output
        return int(pid)


def submit(
    group: ResourceGroup,
    fgpu: str,
    image: str = PYTHON_IMAGE,
    *,
    memory: int = 256 * MIB,
    owner: User | None = None,
    **more: Any,
) -> Session:
    """Return a new session, submitted and placed if it fits; with sudo, unless the owner's policy says otherwise."""
    owner = owner or factories.make_user(policy=factories.make_policy(allow_sudo=True))
    order = services.LaunchRequest(
        image=Image.objects.filter(reference=image).first() or factories.make_image(reference=image),
        resource_group=group,
        cpu=1,
        memory=memory,
        shared_memory=16 * MIB,
        fgpu=milli_fgpu_from(fgpu),
        **more,
    )
    (session,) = services.submit(owner, order)
    run_pass()
    return session


def running(group: ResourceGroup, fgpu: str, **more: Any) -> InContainer:
    """Return a session of this share once it runs."""
    session = submit(group, fgpu, **more)
    wait_for(session, Status.RUNNING)
    return InContainer(session)


def wait_for(session: Session, status: Status) -> None:
    """Wait until the session has the status; fail when it has ended otherwise."""

    def is_there() -> bool:
        session.refresh_from_db()
        assert session.status == status or session.status not in FINAL, session.detail
        return session.status == status

    until(is_there)


def group_of(host_name: str, fgpu_per_gpu: int) -> ResourceGroup:
    """Return the host's group, with its GPUs cut into this many fGPU."""
    group = Host.objects.get(name=host_name).group
    group.fgpu_per_gpu = fgpu_per_gpu
    group.open_to_all = True
    group.save()
    return group
