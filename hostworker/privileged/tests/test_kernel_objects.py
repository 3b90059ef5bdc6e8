"""What the kernel limits for all sessions: one takes no other's, and it is seen who holds what. Real containers."""

import shlex
from collections.abc import Iterator

import pytest

from engine.containers import container_name
from hostworker.privileged import kernel_limits, kernel_objects
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.privileged.kernel_objects import in_flight_exceed, kernel_use
from hostworker.runtime.tests.runtime_worlds import MIB, DockerWorld, make_spec
from tests.fgpu_sessions import PYTHON_IMAGE, ensure_python_image
from tests.hoards import FILE, HOARD, ONE
from tests.wait import until

pytestmark = pytest.mark.docker

LOWER = "import resource as r; r.prlimit(1, r.RLIMIT_NOFILE, (1000, r.prlimit(1, r.RLIMIT_NOFILE)[1]))"


class Sessions:
    """Sessions on the engine, by number."""

    def __init__(self, world: DockerWorld) -> None:
        self._world = world
        self._specs = [make_spec(PYTHON_IMAGE, memory_bytes=256 * MIB) for _ in range(2)]
        runtime = world.runtime()
        for spec in self._specs:
            runtime.create(spec)
            runtime.start(spec.session, 1)

    def container(self, number: int) -> str:
        return str(self._world.inspect(self._specs[number].session, 1)["Id"])

    def hoard(self, number: int, kind: str, most: int) -> int:
        """Have the session take at most so many, and return how many it got."""
        command = ["python3", "-c", HOARD, kind, str(most)]
        made = self._world.client.exec_create(container_name(self._specs[number].session, 1), command, user="work")
        self._world.client.exec_start(made["Id"], detach=True)
        until(lambda: self.run(number, f"ls {FILE}") == f"{FILE}\n")
        return int(self.run(number, f"cat {FILE}"))

    def take_one(self, number: int, kind: str) -> str:
        """Return what the session hears when it takes one; "" where it gets it."""
        return self.run(number, f"python3 -c {shlex.quote(ONE)} {kind}")

    def run(self, number: int, command: str) -> str:
        return self._world.execute(self._specs[number].session, 1, command, "work")[1]


@pytest.fixture
def sessions() -> Iterator[Sessions]:
    ensure_python_image()
    world = DockerWorld(PYTHON_IMAGE)
    HostPrivileges().raise_kernel_limits()
    yield Sessions(world)
    world.clean_up()


@pytest.mark.parametrize(("kind", "most"), [("inotify", 1000), ("pipes", 1500), ("requests", 1000)])
def test_who_takes_many_takes_none_of_others(sessions: Sessions, kind: str, most: int) -> None:
    assert sessions.hoard(0, kind, most) == most
    assert sessions.take_one(1, kind) == ""


def test_a_session_has_a_bounded_number_of_terminals(sessions: Sessions) -> None:
    assert sessions.hoard(0, "terminals", 4000) == kernel_limits.TERMINALS
    assert sessions.take_one(0, "terminals") == "No space left on device\n"
    assert sessions.take_one(1, "terminals") == ""
    assert sessions.run(1, "stat -c %a:%g /dev/ptmx /dev/pts/ptmx").split() == ["777:0", "666:0"]
    assert sessions.run(1, "script -qc 'stat -c %a:%g $(tty)' /dev/null").strip() == "620:5"


def test_what_each_container_holds_is_counted(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions.hoard(0, "inotify", 300)
    sessions.hoard(1, "terminals", 7)
    containers = sessions.container(0), sessions.container(1)
    use = kernel_use(containers)
    assert use.held[containers[0]][kernel_objects.INSTANCES] == 300
    assert use.held[containers[0]][kernel_objects.FILES] > 300
    assert use.held[containers[1]][kernel_objects.TERMINALS] == 7
    assert all(held[kernel_objects.TASKS] >= 3 for held in use.held.values())
    assert set(use.limits) >= {kernel_objects.INSTANCES, kernel_objects.TERMINALS, kernel_objects.IN_FLIGHT}
    assert kernel_use([]).held == {}
    monkeypatch.setattr(kernel_objects, "DESCRIPTORS", 150)
    assert kernel_use(containers).held[containers[0]][kernel_objects.INSTANCES] == pytest.approx(300, rel=0.2)


def test_descriptors_in_flight_are_found_where_nobody_holds_them(sessions: Sessions) -> None:
    for number in (0, 1):
        assert sessions.run(number, f"python3 -c '{LOWER}'") == ""  # so that no other test comes to the limit
    containers = sessions.container(0), sessions.container(1)
    assert not in_flight_exceed(750)
    assert kernel_objects.IN_FLIGHT not in kernel_use(containers).held[containers[0]]
    assert sessions.hoard(0, "flight", 500) <= 100, "then it is refused itself"
    assert sessions.take_one(1, "flight") == "Too many references: cannot splice\n"
    use = kernel_use(containers)
    assert use.limits[kernel_objects.IN_FLIGHT] == 1000
    assert use.held[containers[0]][kernel_objects.IN_FLIGHT] > 1000
    assert use.held[containers[1]].get(kernel_objects.IN_FLIGHT, 0) == 0
