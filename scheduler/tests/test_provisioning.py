"""Elastic groups: hosts are made when sessions wait, join, are used and given back; and each step that fails."""

import json
import stat
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import Settings

from hostaccess import services as hostaccess
from hostaccess.models import HostAccess
from resources.amounts.units import GIB, MIB
from resources.elastic import kinds
from resources.elastic.providers import HostRequest, ProvidedHost, ProvidedState, ProviderError
from resources.models import ElasticHost, ElasticPool, ElasticState, Host, HostStatus, ResourceGroup
from scheduler.cycle import passes
from scheduler.provisioning import reconciler
from sessions.launching import services
from sessions.launching.services import LaunchRequest
from sessions.lifecycle import Status
from sessions.models import Session
from sessions.tests.launch_requests import rejection
from tests.factories import make_group, make_host, make_image, make_user, run_session
from tests.joined_hosts import hosts_may_join

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


@pytest.fixture
def machines(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    provider = Machines()
    monkeypatch.setitem(kinds.KINDS, "memory", provider.make)
    with hosts_may_join():
        yield provider


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
        reconciler.reconcile_all()
    return list(ElasticHost.objects.order_by("pk"))


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


def test_a_host_is_made_joins_is_used_and_given_back(machines: Machines) -> None:
    pool = make_pool()
    session = submit(pool.group)[0]
    row = look()[0]
    assert (row.state, row.type_name, str(row.cost_per_hour)) == (ElasticState.JOINING, "small", "1.500")
    assert "A host comes in about 2 min; it was asked for at" in detail_of(session)
    assert hostaccess.join(machines.requests[0].join_token)["COMPUTE_HOST_NAME"] == row.name
    host = join(row)
    assert look()[0].state == ElasticState.UP
    passes.run_pass()
    session.refresh_from_db()
    assert (session.status, session.host) == (Status.SCHEDULED, host)
    move_back(row, pool.cool_down)
    assert look()[0].state == ElasticState.UP, "it is in use"
    services.terminate(session, actor=session.owner)
    assert look()[0].idle_since is not None
    move_back(row, pool.cool_down)
    assert look()[0].state == ElasticState.DRAINING
    host.refresh_from_db()
    assert (host.is_cordoned, host.cordon_reason) == (True, "Idle")
    move_back(row, MINUTE)
    row = look(2)[0]
    assert (row.state, row.reason, row.has_failed) == (ElasticState.ENDED, "Idle", False)
    assert (machines.hosts, HostAccess.objects.count(), Host.objects.count()) == ({}, 0, 0)
    session.refresh_from_db()
    assert session.status == Status.CANCELLED
    assert look(2) == [row], "nobody waits"


def test_a_host_that_joins_while_hosts_are_listed_suffices(machines: Machines) -> None:
    pool = make_pool()
    submit(pool.group)
    row = look()[0]
    machines.while_listing = lambda: join(row)
    assert [each.state for each in look()] == [ElasticState.UP]


def test_the_budget_bounds_hosts_and_cost(machines: Machines) -> None:
    pool = make_pool(max_hosts=3)
    submit(pool.group, 5)
    assert len(look(3)) == 3
    costly = make_pool(cost_per_hour="3.2")
    submit(costly.group, 5)
    look(3)
    assert costly.hosts.count() == 2
    slow = make_pool(hosts_per_hour=1)
    submit(slow.group, 5)
    look(3)
    assert slow.hosts.count() == 1
    move_back(slow.hosts.get(), timedelta(minutes=10))
    look()
    assert slow.hosts.count() == 1


def test_who_waits_hears_that_the_budget_is_used_up(machines: Machines) -> None:
    pool = make_pool(hosts_per_hour=1)
    sessions = submit(pool.group, 5)
    join(look()[0])
    look(2)
    assert "the budget of the resource group is used up" in detail_of(sessions[-1])


def test_who_could_never_start_is_refused(machines: Machines) -> None:
    pool = make_pool()
    request = request_for(pool.group, fgpu=2000)
    assert list(rejection(make_user(), request)) == ["fgpu"]
    ElasticPool.objects.update(is_enabled=False)
    assert list(rejection(make_user(), request)) == ["resource_group"]


def test_a_host_that_never_joins_is_given_up_in_words(machines: Machines) -> None:
    pool = make_pool()
    session = submit(pool.group)[0]
    row = look()[0]
    move_back(row, pool.give_up_after)
    row = look()[0]
    assert (row.state, row.has_failed, machines.hosts) == (ElasticState.FAILED, True, {})
    assert row.reason == "it has not joined in time"
    pool.refresh_from_db()
    text = detail_of(session)
    said = f"A host was asked for at {row.created_at:%H:%M} UTC and did not come: it has not joined in time; "
    assert f"{said}trying again at {pool.retry_at:%H:%M} UTC." in text
    assert len(look(2)) == 1, "it waits for the pause to pass"
    ElasticPool.objects.update(retry_at=timezone.now() - MINUTE)
    assert len(look()) == 2


def test_each_failure_doubles_the_pause_with_jitter(machines: Machines) -> None:
    pool = make_pool()
    submit(pool.group)
    look()
    pauses = []
    for _ in range(8):
        machines.failure = ""
        ElasticPool.objects.update(retry_at=None)
        row = next(each for each in look() if each.state == ElasticState.JOINING)
        move_back(row, pool.give_up_after)
        now = timezone.now()
        look()
        pool.refresh_from_db()
        assert pool.retry_at is not None
        pauses.append((pool.retry_at - now) / MINUTE)
    for pause, least in zip(pauses, (1, 2, 4, 8, 16, 32, 60, 60), strict=True):
        assert least <= pause <= least * 1.25 + 0.1


def test_a_provider_that_refuses_is_quoted(machines: Machines) -> None:
    pool = make_pool()
    session = submit(pool.group)[0]
    machines.refusal = "quota exceeded"
    row = look(2)[0]
    assert (row.state, row.reason) == (ElasticState.FAILED, "quota exceeded")
    assert "did not come: quota exceeded; trying again at" in detail_of(session)


def test_a_host_of_a_process_that_died_is_adopted(machines: Machines) -> None:
    pool = make_pool()
    submit(pool.group)
    machines.dies_after_create = True
    with pytest.raises(KeyboardInterrupt):
        look()
    row = ElasticHost.objects.get()
    assert (row.state, row.identifier) == (ElasticState.CREATING, "")
    machines.dies_after_create = False
    row = look()[0]
    assert (row.state, row.identifier, len(machines.requests)) == (ElasticState.JOINING, "vm-1", 1)


def test_what_is_not_wanted_is_deleted_and_of_others_not(machines: Machines) -> None:
    pool = make_pool()
    submit(pool.group)
    row = look()[0]
    machines.set("stray", f"{pool.prefix}99-stray")
    machines.set("second", row.name)
    machines.set("ended", f"{pool.prefix}98-ended", ProvidedState.ENDED)
    look()
    assert set(machines.hosts) == {row.identifier, "ended"}


def test_a_provider_that_is_away_changes_nothing(machines: Machines) -> None:
    pool = make_pool()
    submit(pool.group)
    look()
    machines.failure = "the cloud does not answer"
    states = [row.state for row in look(3)]
    assert states == [ElasticState.JOINING]
    machines.failure = ""
    assert [row.state for row in look()] == [ElasticState.JOINING]


def test_a_host_that_its_provider_took_back_is_replaced(machines: Machines) -> None:
    pool = make_pool()
    submit(pool.group)
    row = look()[0]
    join(row)
    look()
    machines.set(row.identifier, row.name, ProvidedState.FAILED, reason="preempted")
    row = look()[0]
    assert (row.state, row.reason) == (ElasticState.FAILED, "preempted")
    assert Host.objects.get().is_cordoned


def test_sessions_are_warned_before_the_provider_takes_a_host_back(machines: Machines) -> None:
    pool = make_pool()
    session = submit(pool.group)[0]
    row = look()[0]
    host = join(row)
    look(2)
    ends_at = timezone.now() + 10 * MINUTE
    machines.set(row.identifier, row.name, ends_at=ends_at)
    assert look()[0].state == ElasticState.UP, "it has joined just now, and is of use for half of its time"
    move_back(row, 10 * MINUTE)
    assert look()[0].state == ElasticState.DRAINING
    host.refresh_from_db()
    assert host.drain_by == ends_at - reconciler.END_BEFORE
    session.refresh_from_db()
    assert session.events.filter(reason="HOST_DRAINED").exists()
    move_back(row, MINUTE)
    assert look()[0].state == ElasticState.DRAINING, "a session is there"


def test_a_host_that_ends_as_planned_has_not_failed(machines: Machines) -> None:
    pool = make_pool()
    submit(pool.group)
    row = look()[0]
    join(row)
    look(2)
    machines.set(row.identifier, row.name, ProvidedState.ENDED)
    row = look()[0]
    assert (row.state, row.reason, row.has_failed) == (ElasticState.ENDED, reconciler.ENDS, False)


def test_a_provider_that_refuses_is_asked_once_in_a_look(machines: Machines) -> None:
    machines.refusal = "no room"
    submit(make_pool().group, 3)
    assert sorted(row.has_failed for row in look()) == [False, False, True]


def test_a_host_that_nobody_could_use_is_a_failure(machines: Machines) -> None:
    pool = make_pool()
    session = submit(pool.group)[0]
    row = look()[0]
    services.terminate(session, actor=session.owner)
    join(row)
    look()
    move_back(row, pool.cool_down)
    look()
    move_back(row, MINUTE)
    look(2)
    pool.refresh_from_db()
    assert "no session could start on it" in pool.problem
    assert ElasticHost.objects.get().state == ElasticState.ENDED


def test_a_working_host_that_is_not_listed_stays(machines: Machines) -> None:
    pool = make_pool()
    submit(pool.group)
    row = look()[0]
    host = join(row)
    look()
    move_back(row, 5 * MINUTE)
    machines.hosts.clear()
    assert look()[0].state == ElasticState.UP
    Host.objects.filter(pk=host.pk).update(status=HostStatus.LOST, lost_at=timezone.now())
    row = look()[0]
    assert (row.state, row.reason) == (ElasticState.FAILED, "Its provider has it no more")


def test_hosts_without_need_are_made_and_kept(machines: Machines) -> None:
    pool = make_pool(min_hosts=1)
    row = look()[0]
    join(row)
    look()
    move_back(row, 2 * pool.cool_down)
    assert [each.state for each in look(2)] == [ElasticState.UP]
    ElasticPool.objects.update(is_enabled=False)
    assert look()[0].state == ElasticState.DRAINING


def test_a_session_that_was_faster_keeps_its_host(machines: Machines) -> None:
    pool = make_pool()
    submit(pool.group)
    row = look()[0]
    host = join(row)
    look()
    ElasticHost.objects.update(state=ElasticState.DRAINING, reason="Idle", state_at=timezone.now() - MINUTE)
    Host.objects.update(is_cordoned=True)
    run_session(host=host)
    reconciler.reconcile_all()
    host.refresh_from_db()
    assert (ElasticHost.objects.get().state, host.is_cordoned) == (ElasticState.UP, False)


def test_a_silent_host_is_given_back_after_its_grace(machines: Machines) -> None:
    pool = make_pool()
    submit(pool.group)
    row = look()[0]
    host = join(row)
    look()
    Host.objects.update(status=HostStatus.LOST, lost_at=timezone.now() - pool.group.host_loss_grace + MINUTE)
    assert look()[0].state == ElasticState.UP
    Host.objects.update(lost_at=timezone.now() - pool.group.host_loss_grace - MINUTE)
    row = look()[0]
    assert (row.state, row.reason, machines.hosts) == (ElasticState.FAILED, "It is silent", {})
    assert host.name == row.name


def test_programs_make_and_list_and_delete_hosts(machines: Machines, tmp_path: Path, settings: Settings) -> None:
    settings.COMPUTE_PROVIDER_COMMANDS = str(tmp_path)
    store = tmp_path / "hosts.json"
    program = tmp_path / "machines"
    program.write_text(PROGRAM.replace("@STORE@", str(store)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    configuration = {name: ["machines", name] for name in ("create", "list", "delete")}
    pool = make_pool(provider="command", configuration=configuration)
    submit(pool.group)
    row = look()[0]
    made = json.loads(store.read_text())[row.name]
    assert (made["cpus"], made["gpus"], made["group"]) == (8, {"count": 1, "kind": ""}, pool.group.name)
    assert hostaccess.join(made["join_token"])["COMPUTE_HOST_NAME"] == row.name
    join(row)
    assert look()[0].state == ElasticState.UP
    row.refresh_from_db()
    row.move_to(ElasticState.DELETING, timezone.now())
    look()
    assert json.loads(store.read_text()) == {}


PROGRAM = """#!/usr/bin/env python3
import json, pathlib, sys

store = pathlib.Path("@STORE@")
hosts = json.loads(store.read_text()) if store.exists() else {}
asked = json.load(sys.stdin)
if sys.argv[1] == "create":
    hosts[asked["name"]] = asked
    print(json.dumps({"identifier": asked["name"]}))
elif sys.argv[1] == "list":
    rows = [{"identifier": name, "host_name": name, "state": "RUNNING"} for name in hosts]
    print(json.dumps({"hosts": rows}))
else:
    hosts.pop(asked["identifier"], None)
store.write_text(json.dumps(hosts))
"""
