"""Runs the platform's processes as one: all start together, their lines are shown in order, and all end together.

What ends by itself once the platform is up is started again, a few times."""

import asyncio
import os
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

from operations.services.base import ServiceAction, ServiceControlError, ServiceState, ServiceStatus
from operations.supervisor import log_end
from operations.supervisor.console import Console
from operations.supervisor.control_server import listening
from operations.supervisor.restarts import FIRST_DELAY, MOST, Restarts

GRACE_SECONDS: Final = 15.0  # for a worker to finish what it is doing
READY_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.3
CHECK_SECONDS: Final = 2.0  # between checks of the services
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One process to run: its name in front of each line, its arguments, and what to add to the environment."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    starts_last: bool = False  # once the platform is ready, which its processor time would delay

    async def start(self, folder: Path) -> asyncio.subprocess.Process:
        """Start it in a process group of its own, so that Ctrl-C reaches it once, through us.

        Should this process be killed, the kernel ends it (prctl PR_SET_PDEATHSIG): no half of a platform is left.
        """
        follow_us = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
        return await asyncio.create_subprocess_exec(
            *follow_us,
            *self.arguments,
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **self.environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )


class ServiceError(Exception):
    """A service could not be started; the message has the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedService:
    """A server that the commands need and that is no child of ours. Its functions may block."""

    name: str
    is_up: Callable[[], bool]
    start: Callable[[], None]  # raises ServiceError
    stop: Callable[[], None] = lambda: None
    short_name: str = ""  # by which people stop and start it; empty: they cannot
    log: Path | None = None


@dataclass(slots=True)
class ServiceRecord:
    """What is known of a process or server, and whether people want it to run."""

    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)  # set while its process does not run
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    restarts: int = 0
    acting: asyncio.Lock = field(default_factory=asyncio.Lock)  # one act at a time

    def __post_init__(self) -> None:
        self.wanted.set()


class Supervisor:
    """Runs commands until a signal stops it, or until one of them exits and cannot be restarted.

    Before the platform is ready, an end is a fault of its set-up and ends all. Afterwards what starts last is started,
    and a process, or a service, that ends is started again, later each time, until it has ended too often within a
    minute.
    """

    def __init__(
        self,
        commands: Sequence[Command],
        *,
        folder: Path,
        output: TextIO,
        services: Sequence[SupervisedService] = (),
        first_delay: float = FIRST_DELAY,
        check_every: float = CHECK_SECONDS,
        control: Path | None = None,
    ) -> None:
        """`control` is the path of a socket on which this user may ask about the services."""
        self._commands = commands
        self._services = services
        self._first_delay = first_delay
        self._check_every = check_every
        self._folder = folder
        self._console = Console(output, [command.name for command in commands])
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._is_ready = asyncio.Event()
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._control = control
        self._records: defaultdict[str, ServiceRecord] = defaultdict(ServiceRecord)

    async def run(self, is_ready: Callable[[], bool], on_ready: Callable[[bool], None]) -> str | None:
        """Return None after a stop signal, or a sentence that names what exited and could not be restarted.

        `is_ready` is polled in a thread; `on_ready` is called once, with False when that took too long.
        """
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        tasks: list[asyncio.Task[Any]] = []
        open_socket = AsyncExitStack()
        try:
            for command in self._commands:
                if command.starts_last:
                    self._records[command.name].ended.set()
                else:
                    await self._start(command)
            keepers = [asyncio.create_task(self._keep(command)) for command in self._commands]
            keepers += [asyncio.create_task(self._guard(service)) for service in self._services]
            tasks = [*keepers, asyncio.create_task(self._announce(is_ready, on_ready))]
            if self._control:
                await open_socket.enter_async_context(listening(self._control, self))
            ended = await self._first_end(keepers)
        finally:
            await open_socket.aclose()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # so that nothing is started any more
            await self._end_all(self._processes)
            await self._console.drain()
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)
        return ended

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def _start(self, command: Command) -> None:
        process = await command.start(self._folder)
        self._processes[command.name] = process
        record = self._records[command.name]
        record.since = datetime.now(UTC)
        record.ended.clear()
        if process.stdout is not None:
            self._console.follow(command.name, process.stdout)

    async def _keep(self, command: Command) -> str:
        """Start the command again whenever it ends by itself; return a sentence once it must not be."""
        restarts, record = Restarts(self._first_delay), self._records[command.name]
        if command.starts_last:
            await self._is_ready.wait()
            await record.wanted.wait()
            await self._start(command)
        while True:
            process = self._processes[command.name]
            await _exit_of(process.pid)
            _signal_groups({command.name: process}, signal.SIGKILL)  # what it has left behind
            status = await process.wait()
            record.since = datetime.now(UTC)
            record.ended.set()
            if not record.wanted.is_set():
                await record.wanted.wait()
                await self._start(command)
                continue
            ended = f"the process {command.name!r} ended by itself, {_how(status)}"
            if not self._is_ready.is_set():
                return f"{ended}; its last lines are above"
            delay = restarts.delay(time.monotonic())
            if delay is None:
                return f"{ended}, {MOST + 1} times within a minute; its last lines are above"
            self._console.say(f"WARNING: {ended}; it is started again in {delay:g} s")
            await asyncio.sleep(delay)
            await record.wanted.wait()
            record.restarts += 1
            await self._start(command)

    async def _guard(self, service: SupervisedService) -> str:
        """Start the service again whenever it is down; return a sentence once it must not be."""
        restarts, record = Restarts(self._first_delay), self._records[service.short_name]
        while True:
            await asyncio.sleep(self._check_every)
            async with record.acting:  # what somebody stops or restarts is down for a while, which is no fault
                if not await _is_missed(service, record):
                    continue
            record.restarts += 1
            record.since = datetime.now(UTC)
            delay = restarts.delay(time.monotonic())
            if delay is None:
                return f"{service.name} was down {MOST + 1} times within a minute; the lines above say why"
            self._console.say(f"WARNING: {service.name} is down; it is started again in {delay:g} s")
            await asyncio.sleep(delay)
            async with record.acting:
                if await _is_missed(service, record):
                    await self._start_service(service)

    async def states(self) -> list[ServiceState]:
        """Return the processes in the order of their start, then the servers that they need."""
        found = []
        for command in self._commands:
            record, process = self._records[command.name], self._processes.get(command.name)
            pid = None if process is None or record.ended.is_set() else process.pid
            found.append(_state(command.name, record, is_up=pid is not None, pid=pid))
        for service in self._controlled().values():
            is_up = await asyncio.to_thread(service.is_up)
            found.append(_state(service.short_name, self._records[service.short_name], is_up=is_up))
        return found

    async def act(self, action: ServiceAction, name: str) -> None:
        """Carry out what somebody wants. Raises ServiceControlError."""
        record = self._record(name)
        if not self._is_ready.is_set():
            raise ServiceControlError("the platform is still starting")
        self._console.say(f"{action.value} of {name} on demand")
        async with record.acting:
            if action is not ServiceAction.START:
                record.wanted.clear()
                await self._end_one(name, record)
            if action is not ServiceAction.STOP:
                record.wanted.set()
                await self._bring_up(name, record)

    async def _bring_up(self, name: str, record: ServiceRecord) -> None:
        """Start a server unless it runs; a process is started by what watches over it."""
        service = self._controlled().get(name)
        if service and not await asyncio.to_thread(service.is_up):
            record.since = datetime.now(UTC)
            if problem := await self._start_service(service):
                raise ServiceControlError(problem)

    async def log(self, name: str, lines: int) -> list[str]:
        """Return the newest lines of its output. Raises ServiceControlError."""
        self._record(name)
        service = self._controlled().get(name)
        if service is None or service.log is None:
            return self._console.newest(name, lines)
        try:
            text = await asyncio.to_thread(log_end.read, service.log)
        except OSError as error:
            raise ServiceControlError(f"its log cannot be read: {error}") from error
        return text.splitlines()[-lines:]

    def _controlled(self) -> dict[str, SupervisedService]:
        return {service.short_name: service for service in self._services if service.short_name}

    def _record(self, name: str) -> ServiceRecord:
        if name not in self._controlled() and name not in {command.name for command in self._commands}:
            raise ServiceControlError(f"there is no service {name!r}")
        return self._records[name]

    async def _end_one(self, name: str, record: ServiceRecord) -> None:
        """End a process, by force after the grace, or a server."""
        if service := self._controlled().get(name):
            await asyncio.to_thread(service.stop)
            record.since = datetime.now(UTC)
            return
        if record.ended.is_set():
            return
        one = {name: self._processes[name]}
        _signal_groups(one, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(record.ended.wait(), GRACE_SECONDS)
            return
        _signal_groups(one, signal.SIGKILL)
        await record.ended.wait()

    async def _start_service(self, service: SupervisedService) -> str:
        """Start it, and return why it does not, or ""; a stop signal during the start takes effect after it."""
        start = asyncio.create_task(asyncio.to_thread(service.start))
        try:
            await asyncio.shield(start)
        except ServiceError as problem:
            self._console.say(f"WARNING: {service.name} does not start: {problem}")
            return str(problem)
        finally:
            await asyncio.wait({start})
        return ""

    async def _first_end(self, keepers: Sequence[asyncio.Task[str]]) -> str | None:
        """Wait for a stop signal or the first keeper to give up; a stop is not an end."""
        stop = asyncio.create_task(self._stop.wait())
        waited_for: set[asyncio.Task[Any]] = {stop, *keepers}
        done, _ = await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if stop in done:
            self._console.say("Stopping; press Ctrl-C again to end at once")
            return None
        return next(keeper.result() for keeper in keepers if keeper in done)

    async def _announce(self, is_ready: Callable[[], bool], on_ready: Callable[[bool], None]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        ready = False
        while not ready and time.monotonic() < deadline:
            ready = await asyncio.to_thread(is_ready)
            if not ready:
                await asyncio.sleep(POLL_SECONDS)
        self._is_ready.set()
        await asyncio.to_thread(on_ready, ready)

    async def _end_all(self, processes: Mapping[str, asyncio.subprocess.Process]) -> None:
        """Ask every process group to end, and kill what is left after the grace or a second signal."""
        _signal_groups(processes, signal.SIGTERM)
        ends = [asyncio.create_task(process.wait()) for process in processes.values()]
        if not ends:
            return
        all_ended = asyncio.gather(*ends)
        hurry = asyncio.create_task(self._hurry.wait())
        first: set[asyncio.Future[Any]] = {all_ended, hurry}
        await asyncio.wait(first, timeout=GRACE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        for name, process in processes.items():
            if process.returncode is None:
                self._console.say(f"{name} did not end in time and is killed")
        _signal_groups(processes, signal.SIGKILL)  # of a group whose leader has ended, this ends the rest
        await all_ended


async def _is_missed(service: SupervisedService, record: ServiceRecord) -> bool:
    """Return whether a server is down that people want to run."""
    return record.wanted.is_set() and not await asyncio.to_thread(service.is_up)


def _state(name: str, record: ServiceRecord, *, is_up: bool, pid: int | None = None) -> ServiceState:
    """Return the state; what does not run although it should is about to be started again."""
    down = ServiceStatus.STARTING if record.wanted.is_set() else ServiceStatus.STOPPED
    status = ServiceStatus.RUNNING if is_up else down
    return ServiceState(name=name, status=status, pid=pid, since=record.since, restarts=record.restarts)


async def _exit_of(pid: int) -> None:
    """Wait until a child has exited; its `wait()` would also wait for other processes with its output open."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, exited = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(handle, exited.set)
    try:
        await exited.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def _signal_groups(processes: Mapping[str, asyncio.subprocess.Process], number: signal.Signals) -> None:
    for process in processes.values():
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def _how(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
