"""Elastic groups: hosts are made when sessions wait, join, are used and given back; and each step that fails."""

import json
import stat
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from pytest_django import Settings

from hostaccess import services as hostaccess
from hostaccess.models import HostAccess
from resources.elastic.providers import ProvidedState
from resources.models import END_BEFORE, ElasticHost, ElasticPool, ElasticState, Host, HostStatus
from scheduler.core.provisioning import COMES_TEXT
from scheduler.cycle import passes
from scheduler.provisioning import reconciler
from scheduler.state.wait_status import round_up_to_minute
from scheduler.tests.machines import (
    MINUTE,
    Machines,
    detail_of,
    join,
    look,
    make_pool,
    move_back,
    reconcile,
    request_for,
    submit,
)
from sessions.launching import services
from sessions.lifecycle import Status
from sessions.tests.launch_requests import rejection
from tests.factories import make_group, make_user, run_session


def test_a_host_is_made_joins_is_used_and_given_back(machines: Machines) -> None:
    pool = make_pool()
    session = submit(pool.group)[0]
    row = look()[0]
    assert (row.state, row.type_name, str(row.cost_per_hour)) == (ElasticState.JOINING, "small", "1.500")
    at = row.created_at + 2 * MINUTE
    assert f"A host comes at about {at:%H:%M} UTC; it was asked for at {row.created_at:%H:%M} UTC." in detail_of(
        session
    )
    assert (session.eta, session.eta_reason) == (round_up_to_minute(at), COMES_TEXT)
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


def test_who_could_never_start_is_refused(machines: Machines) -> None:
    pool = make_pool()
    request = request_for(pool.group, fgpu=2000)
    assert list(rejection(make_user(), request)) == ["fgpu"]
    ElasticPool.objects.update(is_enabled=False)
    assert list(rejection(make_user(), request)) == ["resource_group"]


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


def test_who_waits_in_two_groups_has_one_host_made(machines: Machines) -> None:
    pools = [make_pool(), make_pool()]
    groups = [pool.group for pool in pools]
    services.submit(make_user(), request_for(groups[0], other_groups=groups[1:]))
    assert len(look(2)) == 1


def test_a_repeated_request_has_the_same_token(machines: Machines) -> None:
    pool = make_pool()
    submit(pool.group)
    machines.dies_after_create = True
    with pytest.raises(KeyboardInterrupt):
        look()
    machines.dies_after_create, listed = False, machines.hosts
    machines.hosts = {}  # the provider does not list it yet
    row = look()[0]
    first, second = machines.requests
    assert first.join_token == second.join_token
    machines.hosts = listed
    assert hostaccess.join(first.join_token)["COMPUTE_HOST_NAME"] == row.name
    ElasticHost.objects.update(state=ElasticState.CREATING)
    look()
    with pytest.raises(hostaccess.JoinRefusedError):
        hostaccess.join(first.join_token)


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
    assert host.drain_by == ends_at - END_BEFORE
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
    reconcile()
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


def test_an_empty_group_that_overcommits_has_few_hosts_made(machines: Machines) -> None:
    pool = make_pool(group=make_group(cpu_overcommit=2))
    services.submit(make_user(), request_for(pool.group, count=2, cpu=8, fgpu=0))
    assert len(look()) == 1


def test_a_second_host_that_has_ended_takes_none_away(machines: Machines) -> None:
    pool = make_pool(min_hosts=1)
    row = look()[0]
    join(row)
    look()
    for state in (ProvidedState.ENDED, ProvidedState.FAILED):
        machines.set("vm-9", row.name, state)
        assert [each.state for each in look(2)] == [ElasticState.UP]
    assert list(machines.hosts) == ["vm-1"], "and one that has failed may cost"
    machines.set("vm-9", f"{pool.prefix}9-gone", ProvidedState.FAILED)
    machines.set("vm-8", f"{pool.prefix}8-gone", ProvidedState.FAILED, is_left=False)
    look()
    assert list(machines.hosts) == ["vm-1", "vm-8"], "of which nothing is left to delete"
