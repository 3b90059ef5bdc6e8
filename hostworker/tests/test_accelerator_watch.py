"""Accelerators of other vendors are looked at again: made sysfs trees and CDI files, which break and are mended."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.test import Client

from hostworker.gpus import accelerator_watch
from hostworker.gpus.accelerator_watch import MAX_LOOKS, AcceleratorWatch
from hostworker.gpus.sysfs_sampler import SysfsSampler
from resources.accelerators.discovery import AcceleratorSource, Found
from resources.accelerators.tests.trees import amd_gpu, device, node, spec, write
from resources.amounts.units import GIB
from resources.gpus.discovery import Machine, whole_devices
from resources.hosts import services as hosts
from resources.models import Host
from scheduler.cycle.passes import run_pass
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.factories import make_group, make_session, make_user

pytestmark = pytest.mark.django_db
ERRORS = "sys/class/drm/renderD128/device/ras/umc_err_count"
Watched = Callable[..., tuple[Host, AcceleratorWatch]]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    """Return a function that registers what is below the folder as a ready host, and watches it."""

    def make(kind: str, may_lend: Callable[[str], bool] = bool) -> tuple[Host, AcceleratorWatch]:
        source = AcceleratorSource(host_name="one", cdi_folders=(tmp_path / "cdi",), root=tmp_path / "root")
        machine = Machine(cpu=8, memory=32 * GIB, devices=tuple(whole_devices(source.find().accelerators)))
        make_group(name="lab", accelerator=kind, fgpu_per_gpu=1)
        host = hosts.register_host("one", machine, "lab")
        hosts.declare_ready(host)
        return host, AcceleratorWatch(host, source.find, may_lend, SysfsSampler())

    return make


def lent(host: Host) -> list[int]:
    return list(host.gpus.filter(is_present=True).order_by("index").values_list("index", flat=True))


def placed(host: Host) -> Session:
    """Return a session for one device after a pass of the scheduler."""
    session = make_session(resource_group=host.group, fgpu=1000, cpu=1, memory=GIB)
    run_pass()
    session.refresh_from_db()
    return session


def told(session: Session) -> list[str]:
    return [event.detail for event in session.events.filter(reason=Reason.DEVICE_HEALTH).order_by("at")]


def test_an_unhealthy_gpu_is_not_lent_until_it_recovers(tmp_path: Path, watched: Watched, client: Client) -> None:
    root = tmp_path / "root"
    amd_gpu(root, 1, 128, unique_id=0xA1)
    amd_gpu(root, 2, 129, unique_id=0xA2)
    write(root, {ERRORS: "ue: 0"})
    host, watch = watched("amd.com/gpu")
    holders = [placed(host), placed(host)]
    write(root, {ERRORS: "ue: 3"})
    watch.poll()
    assert lent(host) == [0, 1], "which may be a slip of the reading"
    watch.poll()
    watch.poll()
    assert lent(host) == [1]
    assert host.gpus.get(index=0).problem == "it has 3 uncorrectable errors (umc); reset it"
    client.force_login(make_user(is_superuser=True))
    said = client.get("/hosts/").content.decode()
    assert "(0) is not in order and is lent to nobody." in said
    assert "it has 3 uncorrectable errors (umc); reset it" in said
    texts = sorted(told(holders[0]) + told(holders[1]))
    assert [text.split(" (")[0] for text in texts] == ["The AMD GPU 0 of its host"], "who holds it, once"
    assert texts[0].endswith(
        "is not in order any more. No new session gets it, and what this one computes may be wrong."
    )
    host.gpus.filter(index=0).update(problem="")  # as a worker leaves it that starts now
    watch.poll()
    assert host.gpus.get(index=0).problem
    write(root, {ERRORS: "ue: 0"})
    watch.poll()
    assert lent(host) == [0, 1]
    assert "is not in order" not in client.get("/hosts/").content.decode()
    assert [text.endswith("is in order again.") for text in sorted(told(holders[0]) + told(holders[1]))] == [
        True,
        False,
    ]


def test_no_session_is_placed_on_a_broken_device(tmp_path: Path, watched: Watched) -> None:
    (tmp_path / "nodes").mkdir()
    nodes = [node(tmp_path / "nodes", f"npu{number}") for number in range(2)]
    spec(tmp_path / "cdi", [device(str(number), each) for number, each in enumerate(nodes)])
    host, watch = watched("example.com/npu")
    nodes[0].unlink()
    watch.poll()
    watch.poll()
    assert lent(host) == [1]
    first, second = placed(host), placed(host)
    assert (first.status, second.status) == (Status.SCHEDULED, Status.PENDING)
    node(tmp_path / "nodes", "npu0")
    watch.poll()
    run_pass()
    second.refresh_from_db()
    assert (second.status, told(first)) == (Status.SCHEDULED, [])


def test_devices_that_come_later_are_lent_as_settings_allow(tmp_path: Path, watched: Watched) -> None:
    root = tmp_path / "root"
    amd_gpu(root, 1, 128, unique_id=0xA1)
    host, watch = watched("amd.com/gpu", lambda uid: uid != "AMD-00000000000000a3")
    for number in (2, 3):
        amd_gpu(root, number, 127 + number, unique_id=0xA0 + number)
    watch.poll()
    assert list(host.gpus.order_by("index").values_list("index", "uuid")) == [
        (0, "AMD-00000000000000a1"),
        (1, "AMD-00000000000000a2"),
    ]


def test_a_silent_engine_says_nothing_about_devices(tmp_path: Path, watched: Watched) -> None:
    amd_gpu(tmp_path / "root", 1, 128, unique_id=0xA1)
    host, _ = watched("amd.com/gpu")
    watch = AcceleratorWatch(host, lambda: None, bool, SysfsSampler())
    for _ in range(2):
        watch.poll()
    assert lent(host) == [0]


def test_a_device_that_comes_and_goes_waits_ever_longer(tmp_path: Path, watched: Watched) -> None:
    root = tmp_path / "root"
    amd_gpu(root, 1, 128, unique_id=0xA1)
    host, watch = watched("amd.com/gpu")
    holder, looks = placed(host), []
    for _ in range(10):
        write(root, {ERRORS: "ue: 3"})
        watch.poll()
        watch.poll()
        assert lent(host) == []
        write(root, {ERRORS: "ue: 0"})
        looks.append(0)
        while not lent(host):
            watch.poll()
            looks[-1] += 1
            assert lent(host) or looks[-1] == 1 or "watched" in host.gpus.get().problem
    assert looks == [1, 2, 4, 8, 16, 32, 64, *[MAX_LOOKS] * 3]
    assert len(told(holder)) == 20


def test_a_search_that_hangs_holds_up_nothing(
    tmp_path: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    amd_gpu(tmp_path / "root", 1, 128, unique_id=0xA1)
    host, _ = watched("amd.com/gpu")
    released, searches = threading.Event(), []

    def find() -> Found:
        searches.append(0)
        released.wait()
        return Found()

    watch = AcceleratorWatch(host, find, bool, SysfsSampler())
    monkeypatch.setattr(accelerator_watch, "FIND_SECONDS", 0.01)
    for _ in range(3):
        watch.poll()
    assert (lent(host), len(searches)) == ([0], 1)
    released.set()
    monkeypatch.setattr(accelerator_watch, "FIND_SECONDS", 60)
    watch.poll()
    watch.poll()
    assert (lent(host), len(searches)) == ([], 2)


def test_a_search_that_fails_is_made_again(tmp_path: Path, watched: Watched) -> None:
    amd_gpu(tmp_path / "root", 1, 128, unique_id=0xA1)
    host, _ = watched("amd.com/gpu")

    def find() -> Found:
        raise OSError("no")

    watch = AcceleratorWatch(host, find, bool, SysfsSampler())
    for _ in range(2):
        with pytest.raises(OSError, match="no"):
            watch.poll()
