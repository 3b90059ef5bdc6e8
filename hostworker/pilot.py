"""The pilot: the job of a Slurm cluster that makes its node a host, for as long as the job lasts.

`python -m hostworker.pilot URL` joins with the token in the environment, runs host worker and gateway with what Slurm
granted as their bounds, and replaces them when they end. On SIGUSR1, which Slurm sends before the time limit, or
SIGTERM, on scancel and preemption, it has the host leave by `manage.py leavehost`, and ends with 0. Nothing that needs
Django: a node that has not joined has no settings.

What a pilot that was killed leaves is removed by the next one of its user on the node, and by
`python -m hostworker.pilot --clean` in the epilog of the job: a pilot that lives holds the lock of its folder.
"""

import argparse
import fcntl
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import docker

from engine import products
from engine.containers import HOST_LABEL, SESSION_LABEL
from hostaccess.host_file import ROOT, TOKEN_VARIABLE, JoinError, credentials
from hostworker.enforcement.arbiter import Arbiter
from hostworker.enforcement.arbiter_folder import ArbiterFolder, folder_for
from hostworker.enforcement.programs import Programs

VAR_DIR: Final = os.environ.get("COMPUTE_VAR_DIR", "")
# Of the pilots of this user; refused where it is another's.
FOLDERS: Final = Path(VAR_DIR, "pilots") if VAR_DIR else Path(f"/var/tmp/gpuplatform-pilots-{os.getuid()}")  # noqa: S108
HOST_FILE: Final = "host"
ARBITER_LINK: Final = "arbiter"  # to the folder of that of its GPUs; unlike a file, it is never there by half
NAME: Final = re.compile(r"[\w.-]{1,64}\Z", re.ASCII)
MARGIN_SECONDS: Final = 5  # in which worker and pilot end, of those that the job has left
RESTART_SECONDS: Final = 2
LOOK_SECONDS: Final = 0.5
WORKER_END_SECONDS: Final = 2
MIB: Final = 1 << 20
WORKER: Final = "hostworker"
COMMANDS: Final = (WORKER, "gateway")


class PilotError(Exception):
    """The node cannot be a host; the message says why."""


def main(arguments: Sequence[str]) -> None:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m hostworker.pilot")
    parser.add_argument("url", nargs="?", help="of the platform")
    parser.add_argument("--notice", type=int, default=600, help="seconds from SIGUSR1 to the end of the job")
    parser.add_argument("--grace", type=int, default=30, help="seconds from SIGTERM to the end of the job")
    parser.add_argument("--clean", action="store_true", help="remove what pilots left here that were killed")
    options = parser.parse_args(arguments)
    token = os.environ.pop(TOKEN_VARIABLE, "")
    # Until the host leaves, a signal ends nothing but the wait for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGUSR1))
    try:
        _check_folder()
        with ExitStack() as pilot:
            with _locked(FOLDERS, waits=True):  # a new folder is locked before another pilot sees it
                clean()
                folder = None if options.clean else pilot.enter_context(_own_folder(os.environ["SLURM_JOB_ID"]))
            if folder:
                _serve(folder, options.url or "", token, options.notice, options.grace)
    except KeyError as error:
        sys.exit(f"This is no job of Slurm's: {error} is not set.")
    except (JoinError, PilotError, OSError, docker.errors.DockerException) as error:
        sys.exit(f"This node is no host of GPU Platform: {error}")


def bounds(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that hold a host worker to what Slurm granted to the job. Raises PilotError."""
    try:
        cores = int(environ["SLURM_CPUS_ON_NODE"])
        memory = int(environ.get("SLURM_MEM_PER_NODE") or int(environ["SLURM_MEM_PER_CPU"]) * cores)
    except (KeyError, ValueError) as error:
        raise PilotError(f"Slurm does not say what it granted: {error}.") from error
    found = {"COMPUTE_HOST_CPU": str(cores), "COMPUTE_HOST_GPUS": environ.get("CUDA_VISIBLE_DEVICES", "")}
    if memory:  # 0: all of the node's
        found["COMPUTE_HOST_MEMORY"] = str(memory * MIB)
    if not found["COMPUTE_HOST_GPUS"] or found["COMPUTE_HOST_GPUS"] == "NoDevFiles":
        found["COMPUTE_HOST_GPUS"] = "none"
    return found


def clean() -> None:
    """Remove the containers, arbiters and folders of pilots that are gone."""
    for folder in FOLDERS.iterdir():
        with suppress(FileNotFoundError), _locked(folder) as is_gone:  # its own pilot may remove it meanwhile
            if is_gone:
                _remove_what_runs(folder)
                shutil.rmtree(folder, ignore_errors=True)


def _remove_what_runs(folder: Path) -> None:
    """Remove all containers of the host of a pilot, running or not, and end the arbiter, which outlives its worker."""
    if (folder / HOST_FILE).exists() and NAME.match(name := (folder / HOST_FILE).read_text()):
        with _engine() as engine:
            for container in engine.containers(all=True, filters={"label": f"{HOST_LABEL}={name}"}):
                try:
                    engine.remove_container(container["Id"], force=True, v=True)
                except docker.errors.APIError as error:
                    if error.status_code not in (404, 409):  # gone, or on its way
                        raise PilotError(f"the container engine: {error}") from error
    if (folder / ARBITER_LINK).is_symlink():
        arbiter = Arbiter(Programs(folder, folder), ArbiterFolder((folder / ARBITER_LINK).readlink()))
        for key in arbiter.folder.keys():  # noqa: SIM118  # a method of its own
            arbiter.folder.discard(key)
        arbiter.end()


def _has_sessions(host_name: str) -> bool:
    """Return whether there are containers of sessions of the host."""
    labels = [f"{HOST_LABEL}={host_name}", SESSION_LABEL]
    with _engine() as engine:
        return bool(engine.containers(all=True, filters={"label": labels}))


def _engine() -> closing[docker.APIClient]:
    return closing(docker.APIClient(os.environ.get("COMPUTE_DOCKER_URL", "unix:///var/run/docker.sock")))


def _serve(folder: Path, url: str, token: str, notice: int, grace: int) -> None:
    """Join, run the processes of a host until Slurm wants the node back, and leave."""
    limits = bounds(os.environ)
    with _engine() as engine:  # before the token is spent
        if refused := products.problem(engine.version()):
            raise PilotError(f"the container engine will not do: {refused}.")
    joined = credentials(url, token)
    name, configured = joined["COMPUTE_HOST_NAME"], os.environ.get("COMPUTE_ARBITER_DIR", "")
    arbiter = folder_for(f"{configured}/{folder.name}" if configured else "", folder).resolve()
    (folder / HOST_FILE).write_text(name)
    (folder / ARBITER_LINK).symlink_to(arbiter)
    own = _address_towards(url)
    listening = os.environ.get("COMPUTE_GATEWAY_ADDRESS") or f"{own}:{_free_port()}"
    environment = {
        "COMPUTE_GATEWAY_ADDRESS": listening,
        "COMPUTE_GATEWAY_URL": f"http://{own}:{listening.rpartition(':')[2]}",
        **os.environ,
        "COMPUTE_VAR_DIR": str(folder),
        "COMPUTE_ARBITER_DIR": str(arbiter),
        **limits,
        **joined,
        "COMPUTE_SHARED_ENGINE": "true",  # with other pilots on the node; each is held to its own part
    }
    children = Children(environment)
    try:
        signum = children.run_until((signal.SIGTERM, signal.SIGUSR1))
        seconds = max(1, (notice if signum == signal.SIGUSR1 else grace) - MARGIN_SECONDS)
        children.leave(seconds, grace, lambda: _has_sessions(name))
    finally:
        children.end()
        _remove_what_runs(folder)


class Children:
    """The processes of a host, each started again when it ends: Slurm's SIGTERM reaches them too."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def run_until(self, signals: Sequence[int]) -> int:
        """Keep them running until one of these signals comes; return which."""
        while True:
            self._start_missing(*COMMANDS)
            if found := signal.sigtimedwait(signals, RESTART_SECONDS):
                return found.si_signo

    def leave(self, seconds: int, grace: int, has_sessions: Callable[[], bool]) -> None:
        """Have the host leave: its sessions are warned, and end within this time, or that of a SIGTERM that follows.

        One that was given back has no way to the database any more, and nothing to wait for without sessions.
        """
        deadline = time.monotonic() + seconds
        leaving: subprocess.Popen[bytes] | None = None
        while (left := deadline - time.monotonic()) > 0:
            if leaving is None or leaving.poll():  # killed by a SIGTERM that was for the job, or without a database
                if leaving is not None and leaving.returncode > 0 and not has_sessions():
                    return
                leaving = self._start("leavehost", "--seconds", str(int(left)))
            elif leaving.poll() == 0:
                return
            self._start_missing(WORKER)
            if signal.sigtimedwait((signal.SIGTERM,), LOOK_SECONDS):
                deadline = min(deadline, time.monotonic() + grace - MARGIN_SECONDS)
                self._kill(leaving)
        if leaving is not None:
            self._kill(leaving)

    def end(self) -> None:
        """End them, by force where they take long."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(WORKER_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._kill(process)

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    def _start_missing(self, *commands: str) -> None:
        for command in commands:
            if command not in self._processes or self._processes[command].poll() is not None:
                self._processes[command] = self._start(command)

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command of manage.py, which gets its signals as usual."""
        return subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), *words],
            env=self._environment,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGUSR1)),
        )


def _check_folder() -> None:
    """Make the folder of all pilots of this user. Raises PilotError where others could have put something there."""
    FOLDERS.mkdir(mode=0o700, exist_ok=True)
    found = FOLDERS.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PilotError(f"{FOLDERS} is not a folder of this user alone.")


@contextmanager
def _own_folder(name: str) -> Iterator[Path]:
    """Make the folder of this pilot, locked while it lives."""
    folder = FOLDERS / name
    folder.mkdir(mode=0o755)
    with _locked(folder):  # named by the job, so a requeued one finds what it left gone
        yield folder
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path, *, waits: bool = False) -> Iterator[bool]:
    """Hold the folder's lock; False where a pilot that lives has it. The kernel ends it with the process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            is_held = True
        except BlockingIOError:
            is_held = False
        yield is_held
    finally:
        os.close(descriptor)


def _address_towards(url: str) -> str:
    """Return the address of this node by which it reaches the platform, and so by which it is reached."""
    host = re.sub(r"^\w+://|[/?].*$", "", url)
    name, _, port = host.rpartition(":") if re.search(r":\d+$", host) else (host, "", "443")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((name, int(port)))
        return str(probe.getsockname()[0])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main(sys.argv[1:])
