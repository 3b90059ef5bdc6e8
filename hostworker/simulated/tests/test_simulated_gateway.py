"""Terminals and logs of simulated sessions, through the client that the product uses."""

import asyncio
import time
from collections.abc import Mapping

import pytest

from engine.containers import container_name
from engine.engine import Engine, ExecError
from engine.output import last_lines
from engine.shell import Shell
from hostworker.runtime_protocol import ContainerSpec, GpuGrant
from hostworker.simulated.gateway import HOST, SimulatedGateway
from hostworker.simulated.programs import LINE_SECONDS, Program, ProgramKind
from hostworker.simulated.runtime import SimulatedContainer, SimulatedContainers
from resources.amounts.units import GIB
from tests.wait import SECONDS

GPU = GpuGrant(uuid="GPU-1", share_milli=500, gpu_milli=1000, memory_bytes=8 * GIB, is_simulated=True)


def training() -> SimulatedContainer:
    """Return a container whose session trains, since two minutes ago."""
    names = (f"session{number}" for number in range(100))
    name = next(each for each in names if Program(each).kind is ProgramKind.TRAINING)
    spec = ContainerSpec(
        session=name, attempt=1, image="i", cpu=2, memory_bytes=GIB, shared_memory_bytes=0, gpus=(GPU,), hostname="h"
    )
    return SimulatedContainer(
        spec=spec, container_id="c1", program=Program(name), started_at=time.monotonic() - 24 * LINE_SECONDS
    )


def unsigned(method: str, path: str, body: bytes) -> Mapping[str, str]:
    return {}


@pytest.mark.loopback
def test_a_terminal_and_logs_of_a_simulated_session() -> None:
    container = training()
    asyncio.run(visit(container))


async def visit(container: SimulatedContainer) -> None:
    registry = SimulatedContainers({container.container_id: container})
    server = await asyncio.start_server(SimulatedGateway(registry).serve, HOST, 0)
    engine = Engine(f"http://{HOST}:{server.sockets[0].getsockname()[1]}", unsigned)
    async with server:
        shell = await Shell.start(engine, container.container_id)
        await shell.resize(100, 30)
        await shell.write(b"nprx\x7foc\rnvidia-smi\rls\r")
        shown = await until_shown(shell, b"ls: not in a simulated session")
        assert b"\r\n2\r\n" in shown
        assert b"GPU-1" in shown
        assert await shell.exit_code() is None
        assert await shell.is_container_running()
        await shell.write(b"exit\r")
        while await shell.read():
            pass
        assert await shell.ended() == 0
        lines = (await last_lines(engine, container_name(container.spec.session, 1), 3)).splitlines()
        assert [line.split()[:2] for line in lines] == [["epoch", "2"]] * 3
        with pytest.raises(ExecError, match="no longer exists"):
            await Shell.start(engine, "unknown")


async def until_shown(shell: Shell, what: bytes) -> bytes:
    shown = b""
    async with asyncio.timeout(SECONDS):
        while what not in shown:
            shown += await shell.read()
    return shown


def test_a_program_uses_no_more_than_its_session_has() -> None:
    for number in range(50):
        program, before = Program(f"session{number}"), 0
        for seconds in range(0, 300, 7):
            used = program.cpu_nanoseconds(seconds, cores=4)
            assert before <= used <= seconds * 4 * 10**9
            before = used
            assert program.memory_bytes(seconds, GIB) <= GIB
            assert 0 <= program.gpu_busy(seconds) <= 1
