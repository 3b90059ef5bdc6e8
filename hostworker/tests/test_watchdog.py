"""The watch over a host's GPUs, with stand-ins for NVML and for /proc."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hostworker.enforcement.arbiter_folder import Charge
from hostworker.enforcement.telemetry import GpuProcess
from hostworker.gpus import watchdog as watchdog_module
from hostworker.gpus.watchdog import SessionGpuUse, Watchdog
from hostworker.privileged.host_privileges import HostPrivileges
from notifications.delivery.texts import text_of
from notifications.models import Notification
from resources import procfs
from resources.amounts.units import GIB
from resources.gpus.shares import Sharing
from resources.models import Host
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.factories import make_group, make_host, make_session, make_user, run_session

pytestmark = pytest.mark.django_db

HOOK_INODE = 4711
HOOKED = f"7f00-7f01 r-xp 00006000 fe:00 {HOOK_INODE}    /usr/local/lib/libfgpu.so\n"
FAKED = "7f00-7f01 r-xp 00006000 fe:00 4712    /usr/local/lib/libfgpu.so\n"
READ_ONLY = f"7f00-7f01 r--p 00006000 fe:00 {HOOK_INODE}    /usr/local/lib/libfgpu.so\n"
STRAY = f"7f00-7f01 r-xp 00006000 fe:01 {HOOK_INODE}    /tmp/libfgpu.so\n"
PLAIN = "7f00-7f01 r-xp 00006000 fe:00 99    /usr/lib/libc.so.6\n"


class Driver:
    """What NVML would say."""

    def __init__(self) -> None:
        self.running: list[GpuProcess] = []
        self.busy_percent: int | None = None
        self.by_process: dict[int, int] = {}
        self.is_silent = False

    def processes(self, uuid: str) -> list[GpuProcess] | None:
        return None if self.is_silent else [process for process in self.running if process.uuid == uuid]

    def busy(self, uuid: str) -> int | None:
        return self.busy_percent

    def busy_by_process(self, uuid: str) -> dict[int, int]:
        return self.by_process


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def host() -> Host:
    return make_host(group=make_group(fgpu_per_gpu=2), gpus=1)


@pytest.fixture
def dog(host: Host, driver: Driver) -> Watchdog:
    return Watchdog(host, driver, lambda: frozenset({HOOK_INODE}), 0, HostPrivileges())


@pytest.fixture
def run(host: Host, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a process of a session, or of nobody, on the GPU."""
    monkeypatch.setattr(procfs, "PROC", tmp_path)
    uuid = host.gpus.get().uuid

    def add(
        session: Session | None, pid: int, memory: int | None, maps: str = HOOKED, group: str = "/docker/{}"
    ) -> None:
        folder = tmp_path / str(pid)
        folder.mkdir()
        container = session.container_id if session else ""
        (folder / "cgroup").write_text(f"0::{group.format(container)}\n")
        (folder / "maps").write_text(maps)
        driver.running.append(GpuProcess(uuid=uuid, pid=pid, memory_bytes=memory))

    return add


def start(host: Host, fgpu: int = 500) -> Session:
    """Return a session that runs on the host, in a container with an id like the engine's."""
    session = run_session(make_session(resource_group=host.group, fgpu=fgpu), host=host)
    session.container_id = f"{int(session.pk, 36):064x}"[-64:]
    session.save(update_fields=["container_id"])
    return session


def fate(session: Session) -> tuple[str, str]:
    session.refresh_from_db()
    return session.status, session.reason


RUNS = (Status.RUNNING, Reason.STARTED)


@pytest.mark.parametrize("group", ["/docker/{}", "/system.slice/docker-{}.scope"])
def test_the_processes_of_a_session_together_may_use_its_share(
    host: Host, dog: Watchdog, run: Callable[..., None], group: str
) -> None:
    session = start(host)
    run(session, 1, GIB, group=group)
    run(session, 2, GIB, group=group)
    for _ in range(3):
        dog.poll()
    assert fate(session) == RUNS
    run(session, 3, GIB, group=group)
    dog.poll()
    assert fate(session) == RUNS
    dog.poll()
    assert fate(session) == (Status.TERMINATING, Reason.GPU_LIMIT_EXCEEDED)
    assert session.detail == "It used 3 GiB of GPU memory; its share is 2 GiB."


def test_an_excess_that_was_over_in_between_is_forgiven(
    host: Host, dog: Watchdog, driver: Driver, run: Callable[..., None]
) -> None:
    session = start(host)
    run(session, 1, 3 * GIB)
    dog.poll()
    (excess,) = driver.running
    driver.running = []
    dog.poll()
    driver.running = [excess]
    dog.poll()
    assert fate(session) == RUNS


@pytest.mark.parametrize("maps", [PLAIN, FAKED, STRAY, READ_ONLY])
def test_unhooked_process_ends_only_its_session(host: Host, dog: Watchdog, run: Callable[..., None], maps: str) -> None:
    honest, offender = start(host), start(host)
    run(honest, 1, GIB)
    run(offender, 2, 1, maps)
    dog.poll()
    assert fate(offender) == (Status.TERMINATING, Reason.HOOK_BYPASSED)
    assert fate(honest) == RUNS


def test_a_process_that_has_just_ended_is_no_offence(
    host: Host, dog: Watchdog, run: Callable[..., None], tmp_path: Path
) -> None:
    session = start(host)
    run(session, 1, GIB)
    (tmp_path / "1" / "maps").unlink()
    dog.poll()
    assert fate(session) == RUNS


def test_processes_that_are_not_the_platforms_are_left_alone(
    host: Host, dog: Watchdog, run: Callable[..., None]
) -> None:
    session = start(host)
    run(None, 1, 8 * GIB, PLAIN)
    run(None, 2, 8 * GIB, PLAIN, group="/docker/" + "f" * 64)
    for _ in range(3):
        dog.poll()
    assert fate(session) == RUNS


def test_a_session_with_the_whole_gpu_runs_without_the_hook(
    host: Host, dog: Watchdog, run: Callable[..., None]
) -> None:
    session = start(host, fgpu=2000)
    run(session, 1, 8 * GIB, PLAIN)
    for _ in range(3):
        dog.poll()
    assert fate(session) == RUNS


def test_usage_includes_process_time_where_reported(
    host: Host, dog: Watchdog, driver: Driver, run: Callable[..., None]
) -> None:
    one, other, idle = start(host), start(host), start(host)
    run(one, 1, GIB)
    run(one, 2, GIB // 2)
    run(other, 3, GIB)
    driver.by_process = {1: 10, 2: 5, 3: 40}
    dog.poll()
    readings = {pk: (reading.memory_bytes, reading.utilisation) for pk, reading in dog.readings().items()}
    assert readings == {one.pk: (GIB * 3 // 2, 15), other.pk: (GIB, 40), idle.pk: (0, 0)}


def test_without_process_time_sole_session_gets_device_time(
    host: Host, dog: Watchdog, driver: Driver, run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog_module, "MEASURE_SECONDS", 0)
    driver.busy_percent = 25
    one, other = start(host), start(host)
    run(one, 1, GIB)
    dog.poll()
    assert dog.readings()[one.pk].utilisation == 25
    run(other, 2, GIB)
    dog.poll()
    assert [dog.readings()[session.pk].utilisation for session in (one, other)] == [None, None]


def test_an_old_reading_is_not_reported(host: Host, dog: Watchdog, monkeypatch: pytest.MonkeyPatch) -> None:
    start(host)
    dog.poll()
    assert dog.readings()
    monkeypatch.setattr(watchdog_module, "MAX_AGE_SECONDS", 0)
    assert dog.readings() == {}


def test_many_processes_earn_no_memory_beyond_the_share(host: Host, driver: Driver, run: Callable[..., None]) -> None:
    dog = Watchdog(host, driver, lambda: frozenset({HOOK_INODE}), GIB // 2, HostPrivileges())
    session = start(host)
    for pid in range(1, 141):
        run(session, pid, GIB // 2)
    for _ in range(2):
        dog.poll()
    assert fate(session) == (Status.TERMINATING, Reason.GPU_LIMIT_EXCEEDED)
    assert session.detail == "It used 70 GiB of GPU memory; its share is 2 GiB."


def test_memory_that_the_driver_does_not_tell_is_not_nothing(
    host: Host, dog: Watchdog, driver: Driver, run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog_module, "MEASURE_SECONDS", 0)
    session = start(host)
    run(session, 1, None)
    run(session, 2, GIB)
    dog.poll()
    assert dog.readings()[session.pk].memory_bytes is None
    driver.is_silent = True
    dog.poll()
    assert dog.readings()[session.pk] == SessionGpuUse(memory_bytes=None, utilisation=None)


@pytest.fixture
def windows(dog: Watchdog, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let the watchdog look at the end of that many windows of time."""
    monkeypatch.setattr(watchdog_module, "MEASURE_SECONDS", 0)

    def pass_by(count: int) -> None:
        for _ in range(count):
            dog.poll()

    return pass_by


def test_time_beyond_the_share_is_noted_and_reported_once(
    host: Host, driver: Driver, run: Callable[..., None], windows: Callable[[int], None]
) -> None:
    admin = make_user(is_superuser=True)
    session = start(host, fgpu=250)
    run(session, 1, 1)
    driver.by_process = {1: 60}
    windows(5)
    assert fate(session) == RUNS
    (event,) = session.events.filter(reason=Reason.GPU_TIME_EXCEEDED)
    assert event.detail == "It took 60 % of the GPU's time; its share is 12 %."
    told = Notification.objects.get(kind="GPU_OVERUSE")
    assert (told.user, told.facts["host"]) == (admin, host.name)
    assert text_of(told).title == f"{session.name} takes more of a GPU than its share"


def test_three_windows_beyond_the_share_can_end_the_session(
    host: Host, driver: Driver, run: Callable[..., None], windows: Callable[[int], None]
) -> None:
    host.group.end_gpu_overuse = True
    host.group.save()
    honest, greedy, whole = start(host, fgpu=250), start(host, fgpu=750), start(make_host(gpus=1), fgpu=2000)
    run(honest, 1, 1)
    run(greedy, 2, 1)
    driver.by_process = {1: 12, 2: 60}  # shares of 12.5 and 37.5 %
    windows(2)
    assert fate(greedy) == RUNS
    windows(1)
    assert fate(greedy) == (Status.TERMINATING, Reason.GPU_TIME_EXCEEDED)
    assert session_words(greedy) == "It took 60 % of the GPU's time; its share is 38 %."
    assert fate(honest) == fate(whole) == RUNS


def test_what_the_arbiter_granted_of_others_time_is_allowed(
    host: Host, driver: Driver, run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where sharing is `burst`; nobody is judged while the arbiter does not answer."""
    monkeypatch.setattr(watchdog_module, "MEASURE_SECONDS", 0)
    monkeypatch.setattr(watchdog_module, "NANOSECONDS", 1)
    host.group.sharing, host.group.end_gpu_overuse = Sharing.BURST, True
    host.group.save()
    session = start(host)
    place, account = (session.pk, host.gpus.get().uuid), Account()
    dog = Watchdog(host, driver, lambda: frozenset({HOOK_INODE}), 0, HostPrivileges(), account)
    run(session, 1, 1)
    driver.by_process = {1: 100}
    for charged in (None, None, None, None, 0, 2, 4, 6):  # 2 in a window of 2 s: all of the time
        account.charged = None if charged is None else {place: Charge(total=charged, unheld=0)}
        dog.poll()
        assert fate(session) == RUNS
    for _ in range(3):
        dog.poll()
    assert fate(session) == (Status.TERMINATING, Reason.GPU_TIME_EXCEEDED)


DRIVER = "7f10-7f11 r-xp 000a0000 fe:00 77    /usr/lib/x86_64-linux-gnu/libcuda.so.535.261.03\n"
SECOND_DRIVER = DRIVER.replace("7f10-7f11", "7f20-7f21")
PART_OF_DRIVER = DRIVER.replace("000a0000", "000b0000").replace("7f10-7f11", "7f11-7f12")
SECOND_HOOK = HOOKED.replace("7f00-7f01", "7f30-7f31")


@pytest.mark.parametrize(
    ("maps", "is_allowed"),
    [
        (HOOKED + DRIVER, True),
        (HOOKED + DRIVER + PART_OF_DRIVER, True),
        (HOOKED + DRIVER + SECOND_DRIVER, False),
        (HOOKED + SECOND_HOOK + DRIVER + SECOND_DRIVER, True),
    ],
)
def test_a_driver_copy_without_a_hook_ends_the_session(
    host: Host, dog: Watchdog, run: Callable[..., None], maps: str, is_allowed: bool
) -> None:
    """In a namespace of the loader's that the hook is not in."""
    session = start(host)
    run(session, 1, 1, maps)
    dog.poll()
    assert fate(session) == (RUNS if is_allowed else (Status.TERMINATING, Reason.HOOK_BYPASSED))


@pytest.fixture
def charges() -> dict[str, int]:
    """What the accounts of all attempts say, {GPU UUID: bytes}."""
    return {}


@pytest.fixture
def comparing(host: Host, driver: Driver, charges: dict[str, int]) -> Watchdog:
    privileges, inodes = HostPrivileges(), frozenset({HOOK_INODE})
    return Watchdog(host, driver, lambda: inodes, 0, privileges, charged_memory=lambda key: charges)


def test_memory_that_no_account_has_is_noted(
    host: Host, comparing: Watchdog, run: Callable[..., None], charges: dict[str, int]
) -> None:
    """With the library mapped, and less than the share in all."""
    admin = make_user(is_superuser=True)
    session = start(host)
    run(session, 1, GIB)
    charges[host.gpus.get().uuid] = GIB // 4
    for _ in range(4):
        comparing.poll()
    assert not session.events.filter(reason=Reason.HOOK_BYPASSED).exists()
    for _ in range(3):
        comparing.poll()
    assert fate(session) == RUNS
    (event,) = session.events.filter(reason=Reason.HOOK_BYPASSED)
    assert event.detail == "It holds 1 GiB of GPU memory, of which its limits count 256 MiB."
    assert Notification.objects.get(kind="GPU_OVERUSE").user == admin


def test_memory_that_no_account_has_can_end_the_session(
    host: Host, comparing: Watchdog, run: Callable[..., None], charges: dict[str, int]
) -> None:
    host.group.end_gpu_overuse = True
    host.group.save()
    honest, offender = start(host), start(host)
    run(honest, 1, GIB)
    charges[host.gpus.get().uuid] = GIB
    for _ in range(6):
        comparing.poll()
    assert fate(honest) == RUNS
    run(offender, 2, GIB * 3 // 2)
    for _ in range(5):
        comparing.poll()
    assert fate(offender) == (Status.TERMINATING, Reason.HOOK_BYPASSED)
    assert fate(honest) == RUNS


def test_memory_given_back_between_two_readings_is_forgiven(
    host: Host, comparing: Watchdog, run: Callable[..., None], charges: dict[str, int]
) -> None:
    session = start(host)
    run(session, 1, GIB)
    uuid = host.gpus.get().uuid
    for number in range(20):
        charges[uuid] = GIB if number % 5 == 4 else 0
        comparing.poll()
    assert not session.events.filter(reason=Reason.HOOK_BYPASSED).exists()


def test_busy_without_a_turn_is_noted_and_reported_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the session has no process on the GPU: who lies to the arbiter needs none."""
    monkeypatch.setattr(watchdog_module, "MEASURE_SECONDS", 0)
    monkeypatch.setattr(watchdog_module, "NANOSECONDS", 50)
    admin = make_user(is_superuser=True)
    liar, honest = start(host, fgpu=250), start(host, fgpu=250)
    uuid, account = host.gpus.get().uuid, Account()
    dog = Watchdog(host, Driver(), lambda: frozenset({HOOK_INODE}), 0, HostPrivileges(), account)
    for window in range(6):
        account.charged = {
            (liar.pk, uuid): Charge(total=100 * window, unheld=90 * window),
            (honest.pk, uuid): Charge(total=100 * window, unheld=5 * window),
        }
        dog.poll()
    assert (fate(liar), fate(honest)) == (RUNS, RUNS)
    (event,) = liar.events.filter(reason=Reason.GPU_TIME_EXCEEDED)
    assert event.detail == "For 90 % of the time it said that it used the GPU, without a turn from the arbiter."
    assert not honest.events.filter(reason=Reason.GPU_TIME_EXCEEDED).exists()
    assert Notification.objects.get(kind="GPU_OVERUSE").user == admin


class Account:
    """What the arbiter would say that it has charged so far."""

    charged: dict[tuple[str, str], Charge] | None = None

    def __call__(self) -> dict[tuple[str, str], Charge] | None:
        return self.charged


def session_words(session: Session) -> str:
    session.refresh_from_db()
    return session.detail
