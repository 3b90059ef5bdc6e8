"""A provider in memory whose calls may be told to fail, a pool of it, and what happens to its hosts, for tests."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from resources.amounts.units import GIB, MIB
from resources.elastic.providers import HostRequest, ProvidedHost, ProvidedState, ProviderError
from resources.models import ElasticHost, ElasticPool, Host, ResourceGroup
from scheduler.cycle import passes
from scheduler.provisioning import reconciler
from sessions.launching import services
from sessions.launching.services import LaunchRequest
from sessions.models import Session
from tests.factories import make_group, make_host, make_image, make_user

MINUTE = timedelta(minutes=1)
SMALL = {"name": "small", "cpus": 8, "memory": "32g", "gpu_count": 1, "cost_per_hour": "1.5"}


class Machines:
    """What a provider has, in memory; each call may be told to fail."""

    def __init__(self) -> None:
        self.hosts: dict[str, ProvidedHost] = {}  # by identifier
        self.requests: list[HostRequest] = []
        self.failure = self.refusal = ""  # of all calls; of `create`
        self.dies_after_create = False
        self.while_listing: Callable[[], object] = lambda: None

    def make(self, configuration: Any, prefix: str) -> "Machines":
        return self

    def create(self, request: HostRequest) -> str:
        self._fail()
        if self.refusal:
            raise ProviderError(self.refusal)
        self.requests.append(request)
        for host in self.hosts.values():
            if host.host_name == request.name:
                return host.identifier
        identifier = f"vm-{len(self.requests)}"
        self.set(identifier, request.name)
        if self.dies_after_create:
            raise KeyboardInterrupt
        return identifier

    def list(self) -> Sequence[ProvidedHost]:
        self._fail()
        self.while_listing()
        return list(self.hosts.values())

    def delete(self, identifier: str) -> None:
        self._fail()
        self.hosts.pop(identifier, None)

    def set(self, identifier: str, name: str, state: ProvidedState = ProvidedState.RUNNING, **more: Any) -> None:
        self.hosts[identifier] = ProvidedHost(identifier=identifier, host_name=name, state=state, **more)

    def _fail(self) -> None:
        if self.failure:
            raise ProviderError(self.failure)


def make_pool(**overrides: Any) -> ElasticPool:
    pool = ElasticPool(
        **{"group": make_group(fgpu_per_gpu=1), "provider": "memory", "host_types": [SMALL], "max_hosts": 4} | overrides
    )
    pool.full_clean()
    pool.save()
    return pool


def request_for(group: ResourceGroup, **overrides: Any) -> LaunchRequest:
    fields: dict[str, Any] = {"resource_group": group, "cpu": 1, "memory": GIB, "shared_memory": 64 * MIB}
    return LaunchRequest(**fields | {"fgpu": 1000, "image": make_image()} | overrides)


def submit(group: ResourceGroup, count: int = 1) -> list[Session]:
    request = request_for(group, count=count)
    return services.submit(make_user(), request)


def look(count: int = 1) -> list[ElasticHost]:
    for _ in range(count):
        passes.run_pass()
        reconcile()
    return list(ElasticHost.objects.order_by("pk"))


def reconcile() -> None:
    for pool_id in reconciler.pool_ids():
        reconciler.reconcile_pool(pool_id)


def join(row: ElasticHost) -> Host:
    """Have the worker of a host register."""
    return make_host(name=row.name, group=row.pool.group, gpus=1, cpu=8, memory=32 * GIB)


def move_back(row: ElasticHost, span: timedelta) -> None:
    """Have what has happened to a host be so long ago."""
    row.refresh_from_db()
    for name in ("created_at", "state_at", "joined_at", "idle_since"):
        if (at := getattr(row, name)) is not None:
            setattr(row, name, at - span)
    row.save()


def detail_of(session: Session) -> str:
    passes.run_pass()
    session.refresh_from_db()
    return session.detail
