"""Registration, heartbeats, loss and return of hosts."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from fgpu.simulated import DRIVER as SIMULATED_DRIVER
from resources.amounts.units import GIB
from resources.gpus.discovery import Device, Machine, this_machine
from resources.hosts import services
from resources.models import Gpu, Host, HostStatus, ResourceGroup
from tests.factories import make_gpu, make_group, make_host, run_session
from tests.wait import SECONDS

SECOND = timedelta(seconds=1)


def device(uuid: str, index: int = 0, **overrides: Any) -> Device:
    fields: dict[str, Any] = {"uuid": uuid, "index": index, "name": "H100", "memory": 80 * GIB}
    return Device(**fields | overrides)


def machine(*devices: Device, cpu: int = 8, memory: int = 32 * GIB) -> Machine:
    return Machine(cpu=cpu, memory=memory, devices=devices)


def age(host: Host, by: timedelta) -> None:
    Host.objects.filter(pk=host.pk).update(heartbeat_at=timezone.now() - by)


@pytest.mark.django_db
def test_a_new_host_joins_the_named_group() -> None:
    host = services.register_host("alpha", machine(device("GPU-a"), device("GPU-b", 1, is_simulated=True)), "lab")
    stored = Host.objects.get()
    assert stored == host
    assert (stored.name, stored.group.name, stored.cpu, stored.memory) == ("alpha", "lab", 8, 32 * GIB)
    assert stored.status == HostStatus.JOINING
    gpus = stored.gpus.values_list("uuid", "index", "name", "memory", "is_simulated", "is_present")
    assert list(gpus) == [("GPU-a", 0, "H100", 80 * GIB, False, True), ("GPU-b", 1, "H100", 80 * GIB, True, True)]
    assert timezone.now() - stored.heartbeat_at < timedelta(minutes=1)


@pytest.mark.django_db
def test_a_known_host_updates_only_its_amounts() -> None:
    group = make_group()
    host = make_host(name="alpha", group=group, is_cordoned=True, cpu=2)
    services.register_host("alpha", machine(cpu=4), "another")
    stored = Host.objects.get()
    assert (stored.pk, stored.group, stored.is_cordoned, stored.cpu) == (host.pk, group, True, 4)
    assert stored.status == HostStatus.JOINING
    assert not ResourceGroup.objects.filter(name="another").exists()


@pytest.mark.django_db
def test_registration_updates_topology_and_driver() -> None:
    paired = this_machine(host_name="alpha", simulated="2x8GiB nvlink=4,1x8GiB")
    services.register_host("alpha", paired, "lab")
    assert Host.objects.get().gpu_topology["links"] == [["X", "NV4", "?"], ["NV4", "X", "?"], ["?", "?", "X"]]
    assert Host.objects.get().gpu_driver == SIMULATED_DRIVER
    services.register_host("alpha", machine(device("GPU-a")), "lab")
    assert (Host.objects.get().gpu_topology, Host.objects.get().gpu_driver) == ({}, "")


@pytest.mark.django_db
def test_registration_updates_the_gateway() -> None:
    for url in ("http://10.0.0.7:8010", "http://10.0.0.8:8010", ""):
        services.register_host("alpha", machine(), "lab", gateway_url=url)
        assert Host.objects.get().gateway_url == url


@pytest.mark.django_db
def test_a_missing_gpu_is_marked_absent() -> None:
    services.register_host("alpha", machine(device("GPU-a"), device("GPU-b", 1)), "lab")
    services.register_host("alpha", machine(device("GPU-b", 0)), "lab")
    assert list(Gpu.objects.order_by("uuid").values_list("index", "is_present")) == [(0, False), (0, True)]
    services.register_host("alpha", machine(device("GPU-a"), device("GPU-b", 1)), "lab")
    assert list(Gpu.objects.order_by("uuid").values_list("index", "is_present")) == [(0, True), (1, True)]


@pytest.mark.django_db
def test_a_gpu_moves_hosts_once_it_is_free(caplog: pytest.LogCaptureFixture) -> None:
    old = make_host(group=make_group(fgpu_per_gpu=2))
    gpu = make_gpu(host=old, uuid="GPU-a")
    session = run_session(host=old, fgpu=500)
    services.register_host("beta", machine(device("GPU-a"), device("GPU-b", 1)), old.group.name)
    gpu.refresh_from_db()
    assert gpu.host == old
    assert "GPU-a is still leased on another host" in caplog.text
    assert Gpu.objects.get(uuid="GPU-b").host.name == "beta"
    session.delete()
    services.register_host("beta", machine(device("GPU-a"), device("GPU-b", 1)), old.group.name)
    gpu.refresh_from_db()
    assert gpu.host.name == "beta"


@pytest.mark.django_db(transaction=True)
def test_concurrent_registration_creates_one_host() -> None:
    together = threading.Barrier(4, timeout=SECONDS)

    def register(_: int) -> int:
        try:
            Host.objects.exists()  # the connection is open
            together.wait()
            return services.register_host("alpha", machine(device("GPU-a")), "lab").pk
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(register, range(4)))) == 1
    assert (Host.objects.count(), ResourceGroup.objects.count(), Gpu.objects.count()) == (1, 1, 1)


@pytest.mark.django_db
def test_declaring_ready_twice_reports_one_change() -> None:
    host = make_host(status=HostStatus.LOST, lost_at=timezone.now())
    assert services.declare_ready(host)
    assert not services.declare_ready(host)
    host.refresh_from_db()
    assert (host.status, host.lost_at) == (HostStatus.READY, None)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("status", "is_news"), [(HostStatus.READY, True), (HostStatus.JOINING, False), (HostStatus.LOST, False)]
)
def test_only_a_ready_host_becomes_joining(status: HostStatus, is_news: bool) -> None:
    host = make_host(status=status)
    assert services.declare_joining(host) is is_news
    host.refresh_from_db()
    assert host.status == (HostStatus.JOINING if is_news else status)


@pytest.mark.django_db
@pytest.mark.parametrize("status", [HostStatus.READY, HostStatus.JOINING])
def test_a_heartbeat_alone_does_not_revive_a_lost_host(
    status: HostStatus,
) -> None:
    host = make_host(status=status)
    age(host, services.SILENCE - SECOND)
    assert services.declare_lost() == []
    age(host, services.SILENCE + SECOND)
    assert services.declare_lost() == [host]
    assert services.declare_lost() == []
    services.heartbeat(host)
    assert services.declare_lost() == []
    host.refresh_from_db()
    assert host.status == HostStatus.LOST
    assert host.lost_at
    assert timezone.now() - host.heartbeat_at < timedelta(minutes=1)


@pytest.mark.django_db
def test_cordoning_tells_how_many_changed() -> None:
    make_host(), make_host(is_cordoned=True)
    assert services.cordon(Host.objects.all(), cordoned=True) == 1
    assert services.cordon(Host.objects.all(), cordoned=True) == 0
    assert services.cordon(Host.objects.all(), cordoned=False) == 2
