"""Root on this host for a host worker that is not root: through a helper container that it has the engine run.

Whoever may use the engine's socket is root's equal on the engine's machine, so nothing is gained by it that was not had
before; see docs/adr/0014. The helper is started with the first operation, anew where it has gone, and ends with the
connection to it: by itself, when this process ends in whatever way.
"""

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Final

from docker.api import APIClient
from docker.errors import APIError, DockerException, ImageNotFound
from requests.exceptions import RequestException

from folders.files.walk import Usage
from hostworker.privileged import helper_container
from hostworker.privileged.attachment import Attachment
from hostworker.privileged.base import ContainerFiles, KernelUse, PrivilegesError
from hostworker.privileged.firewall import FirewallError
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.runtime_protocol import EnforcementError

logger = logging.getLogger(__name__)

LOCAL: Final = "unix://"
REQUEST_SECONDS: Final = 60
ANSWER_SECONDS: Final = 60.0  # more than the longest operation may take
RETRY_SECONDS: Final = 5.0  # after a helper could not be started
ABANDONED_SECONDS: Final = 60  # a helper that was made so long ago and does not run has lost its worker
READY: Final = 0  # the number of the line with which the helper begins
# Of what the helper raises, what callers tell apart; all else is a PrivilegesError.
EXCEPTIONS: Final[dict[str, type[Exception]]] = {each.__name__: each for each in (EnforcementError, FirewallError)}
# The operations whose results are the same in JSON; the others are methods of HelperPrivileges.
ASKED: Final = (
    *("give_to_root", "rewrite_limits", "process_started", "container_of", "starts_hooked", "limit_gpu_memory"),
    *("can_name", "give_name", "set_mount_read_only", "end_mount_writers", "take_mount_away", "raise_kernel_limits"),
    *("bound_terminals", "limit_storage", "bound_files", "purge", "unmap_root"),
    *("clusters_problem", "hold_cluster", "join_cluster", "silent_in_cluster", "keep_clusters"),
)

Labels = Mapping[str, str]


class HelperPrivileges(HostPrivileges):
    """Has everything done by a helper. The engine must be on this machine."""

    def __init__(self, engine_url: str, labels: Labels, fgpu_folder: Path) -> None:
        """`labels` go onto the helper's container; limits files are given to root below `fgpu_folder` alone."""
        self._engine_url = engine_url
        self._labels = labels
        self._fgpu_folder = fgpu_folder
        self._lock = threading.Lock()  # guards what follows; held while a helper starts, so that there is one
        self._link: _Link | None = None
        self._failure = ""
        self._failed_at = 0.0

    def problem(self) -> str:
        """Start the helper unless it runs; return why it does not."""
        try:
            self._connected()
        except PrivilegesError as error:
            return f"its worker does not run as root, and has no helper that does: {error}"
        return ""

    def folder_usage(self, root: Path, key: str, holder: int, folder: str, most: int | None) -> Usage:
        return Usage(*self._ask("folder_usage", root, key, holder, folder, most))

    def map_root(self, root: Path, key: str) -> Path:
        return Path(self._ask("map_root", root, key))

    def hook_inodes(self, pid: int) -> frozenset[int] | None:
        found = self._ask("hook_inodes", pid)
        return None if found is None else frozenset(found)

    def kernel_use(self, containers: Collection[str]) -> KernelUse:
        held, limits = self._ask("kernel_use", containers)
        return KernelUse(held=held, limits=limits)

    def firewall_problem(self) -> str:
        try:
            return str(self._ask("firewall_problem"))
        except PrivilegesError as error:
            return f"the worker does not run as root, and has no helper that does: {error}"

    def hold_firewall(self, device: str, worker: str, deny_private: bool) -> None:
        try:
            self._ask("hold_firewall", device, worker, deny_private)
        except PrivilegesError as error:
            raise FirewallError(str(error)) from error

    def end(self) -> None:
        """Have the helper end; the next operation starts another."""
        with self._lock:
            if self._link:
                self._link.close()
            self._link = None

    def _ask(self, operation: str, *arguments: object) -> Any:
        return self._connected().ask(operation, *arguments)

    def _connected(self) -> "_Link":
        """Return the connection to a helper that runs. Raises PrivilegesError."""
        with self._lock:
            if self._link and self._link.is_open:
                return self._link
            if self._failure and time.monotonic() - self._failed_at < RETRY_SECONDS:
                raise PrivilegesError(self._failure)
            try:
                self._link, self._failure = self._start(), ""
            except PrivilegesError as error:
                self._failure, self._failed_at = str(error), time.monotonic()
                raise
            return self._link

    def _start(self) -> "_Link":
        if not self._engine_url.startswith(LOCAL):
            raise PrivilegesError("the container engine is on another machine.")
        try:
            with closing(APIClient(self._engine_url, version="auto", timeout=REQUEST_SECONDS)) as client:
                _remove_abandoned(client)
                made = _create(client, helper_container.config(self._labels, self._fgpu_folder))
                link = self._started(client, made)
        except APIError as error:
            raise PrivilegesError(f"the container engine refuses it: {error.explanation or error}") from error
        except (DockerException, RequestException, OSError) as error:
            raise PrivilegesError(f"the container engine does not answer: {error}") from error
        link.wait_until_ready()
        logger.info("container %s does what needs root: the helper", made[:12])
        return link

    def _started(self, client: APIClient, made: str) -> "_Link":
        """Attach to the new container, then start it; it is removed where that fails."""
        with ExitStack() as undo:
            undo.callback(_remove, client, made)
            link = _Link(Attachment(Path(self._engine_url.removeprefix(LOCAL)), made))
            undo.callback(link.close)
            client.start(made)
            undo.pop_all()
        return link


def _asked(operation: str) -> Callable[..., Any]:
    """Return the method that has the helper do the operation, whose result is the same in JSON."""

    def ask(self: HelperPrivileges, *arguments: object, **named: object) -> Any:
        return self._ask(operation, *arguments, *named.values())

    return ask


for _name in ASKED:
    setattr(HelperPrivileges, _name, _asked(_name))


class _Link:
    """The connection to one helper: requests of many threads, answered in any order."""

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment
        self._lock = threading.Lock()  # guards all that follows, and that lines are written whole
        self._ready: Future[Any] = Future()
        self._answers: dict[int, Future[Any]] = {READY: self._ready}
        self._number = READY
        self._is_open = True
        threading.Thread(target=self._read, name="helper", daemon=True).start()

    @property
    def is_open(self) -> bool:
        """Whether the helper can be asked, as far as is known."""
        return self._is_open

    def wait_until_ready(self) -> None:
        """Return once the helper takes requests. Raises PrivilegesError where it cannot do what it is for."""
        if problem := self._outcome(self._ready):
            self.close()
            raise PrivilegesError(str(problem))

    def ask(self, operation: str, *arguments: object) -> Any:
        """Return the operation's result; raise what it raised, or PrivilegesError."""
        answer: Future[Any] = Future()
        with self._lock:
            if not self._is_open:
                raise PrivilegesError("the helper has ended.")
            self._number += 1
            number = self._number
            self._answers[number] = answer
            try:
                self._attachment.write(f"{json.dumps([number, operation, arguments], default=_encoded)}\n".encode())
            except OSError as error:
                raise PrivilegesError(f"the helper does not listen: {error}") from error
        return self._outcome(answer)

    def close(self) -> None:
        """Let go of the helper, which ends it."""
        self._attachment.close()

    def _outcome(self, answer: "Future[Any]") -> Any:
        try:
            return answer.result(ANSWER_SECONDS)
        except FutureTimeoutError:
            self.close()
            raise PrivilegesError(f"the helper did not answer within {ANSWER_SECONDS:.0f} s.") from None

    def _read(self) -> None:
        """Hand out answers until the helper has ended; then nobody waits any longer."""
        try:
            for line in self._attachment.lines():
                number, result, failure = json.loads(line)
                answer = self._answers.pop(number)
                if failure is None:
                    answer.set_result(result)
                else:
                    answer.set_exception(EXCEPTIONS.get(failure[0], PrivilegesError)(failure[1]))
        except (OSError, ValueError, KeyError) as error:
            logger.warning("the helper was not understood: %s", error)
        with self._lock:
            self._is_open = False
            left = list(self._answers.values())
            self._answers.clear()
        self.close()
        words = self._attachment.stderr_tail()
        for answer in left:
            answer.set_exception(PrivilegesError(f"the helper has ended{': ' if words else ''}{words}."))


def _encoded(argument: object) -> object:
    """Return the JSON of an argument of an operation."""
    match argument:
        case Path():
            return str(argument)
        case ContainerFiles():
            return [argument.container_id, argument.pid, str(argument.hostname_path), str(argument.hosts_path)]
        case Mapping():
            return dict(argument)
        case Collection():
            return sorted(argument)
    raise TypeError(f"{argument!r} is no argument of an operation")


def _create(client: APIClient, config: Mapping[str, object]) -> str:
    """Return the id of a new container, whose image is made where it is missing."""
    name = f"{helper_container.NAME_PREFIX}{secrets.token_hex(8)}"
    try:
        return str(client.create_container_from_config(config, name)["Id"])
    except ImageNotFound:
        client.import_image_from_data(
            helper_container.layer(), repository=helper_container.REPOSITORY, tag=helper_container.TAG
        )
        return str(client.create_container_from_config(config, name)["Id"])


def _remove_abandoned(client: APIClient) -> None:
    """Remove helpers that were made and never ran: the engine itself removes those that have run."""
    filters = {"label": [helper_container.HELPER_LABEL], "status": ["created", "exited", "dead"]}
    for container in client.containers(all=True, filters=filters):
        if time.time() - container["Created"] > ABANDONED_SECONDS:
            _remove(client, container["Id"])


def _remove(client: APIClient, container_id: str) -> None:
    with suppress(APIError):  # gone, or another is at it
        client.remove_container(container_id, force=True)
