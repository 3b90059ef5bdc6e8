"""Replays of recorded sessions under a scenario: history, command and page."""

from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from bench.trace import Trace
from resources.models import Host
from scheduler.core.types import EPOCH, PlacementPolicyName
from scheduler.history import recorded
from scheduler.simulation.comparison import Scenario, compare, vary
from scheduler.simulation.simulator import simulate as replay
from scheduler.simulation.trace import missing_models, read_pods, read_trace, world
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.factories import make_host, make_user, run_session
from tests.web import browser_of

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
PAGE = "/admin/simulation/"


@pytest.fixture
def host() -> Host:
    """A host of one GPU on which three sessions have run for an hour each, one after the other, but came together."""
    host = make_host(gpus=1)
    begun = timezone.now() - 10 * HOUR
    for number in range(3):
        session = run_session(host=host, fgpu=2000)
        session.move_to(Status.ERROR, Reason.CONTAINER_EXITED)
        started = begun + number * HOUR
        Session.objects.filter(pk=session.pk).update(created_at=begun, started_at=started, ended_at=started + HOUR)
    return host


def simulate(**options: Any) -> str:
    out = StringIO()
    call_command("simulate", stdout=out, **options)
    return out.getvalue()


def test_history_is_replayed_unchanged_and_under_the_scenario(host: Host) -> None:
    snapshot, jobs = recorded(timezone.now() - 24 * HOUR)
    assert [job.runs_for for job in jobs] == [HOUR] * 3
    found = compare(snapshot, jobs, Scenario(add_hosts=2))
    figures = {row.name: row[1:] for row in found.rows}
    assert figures["mean wait"] == ("1 h", "0 min", -100)
    assert figures["max wait"] == ("2 h", "0 min", -100)
    assert found.summary == "2 more hosts: mean wait -100 %"
    assert len(found.moments) == len(found.waiting[0]) == len(found.in_use[1]) == 200
    assert (found.waiting[0][0], found.waiting[1][0]) == (2, 0)
    assert (found.in_use[0][0], found.in_use[1][0]) == (100, 100)
    assert (found.in_use[0][199], found.waiting[0][199]) == (0, 0)


def test_only_recent_sessions_that_ran_are_replayed(
    host: Host, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    Session.objects.filter(pk=Session.objects.all()[0].pk).update(started_at=None)
    with django_assert_num_queries(7):
        _, jobs = recorded(timezone.now() - 24 * HOUR)
    assert len(jobs) == 2
    assert recorded(timezone.now() - HOUR)[1] == []
    assert recorded(timezone.now() - 24 * HOUR, limit=1)[1] == jobs[:1]
    assert recorded(timezone.now() - 24 * HOUR, make_host().group)[1] == []


def test_a_scenario_leaves_other_settings_unchanged(host: Host) -> None:
    snapshot, _ = recorded(timezone.now() - 24 * HOUR)
    assert vary(snapshot, Scenario()) == snapshot
    finer = vary(snapshot, Scenario(fgpu_per_gpu=8, placement_policy=PlacementPolicyName.SPREAD))
    assert [gpu.capacity_milli for host in finer.hosts for gpu in host.gpus] == [8000]
    assert {rule.placement_policy for rule in finer.rules.values()} == {PlacementPolicyName.SPREAD}
    more = vary(snapshot, Scenario(add_hosts=2))
    assert len({host.id for host in more.hosts}) == len({gpu.id for host in more.hosts for gpu in host.gpus}) == 3


def test_the_command_prints_both(host: Host) -> None:
    text = simulate(add_hosts=1)
    assert "3 sessions on 1 hosts" in text
    assert "1 more host: mean wait" in text


def test_the_command_replays_a_trace(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,32000,100000,1,T4\n")
    columns = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\n"
    pods.write_text(columns + "".join(f"p{number},1000,1000,1,1000,0,3600\n" for number in range(3)))
    assert "1 more host, balance: mean wait -67 %" in simulate(nodes=nodes, pods=pods, add_hosts=1, policy="balance")
    pods.write_text("name\nx\n")
    with pytest.raises(CommandError, match="cannot be read"):
        simulate(nodes=nodes, pods=pods)


def test_a_trace_is_placed_by_its_models_of_gpu(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,32000,100000,8,P100\nb,32000,100000,1,T4\n")
    specs = ("A100", "V100M16|T4", "T4|V100M16", "T4", "P100|T4", "")
    rows = "".join(f"p{number},1000,1000,1,1000,{spec},0,3600\n" for number, spec in enumerate(specs))
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n" + rows)
    hosts, asked = read_trace(nodes, pods)
    starts = replay(*world(hosts, asked)).starts
    hours = {number: (starts[f"{number:06}"] - EPOCH) / HOUR for number in range(1, 6)}
    assert sorted(hours[number] for number in (1, 2, 3)) == [0, 1, 2]  # one after another on the only T4
    assert (hours[4], hours[5]) == (0, 0)
    assert "000000" not in starts
    assert missing_models(hosts, asked) == {"A100": 1}
    text = simulate(nodes=nodes, pods=pods)
    assert "No host has the model of GPU that 1 sessions ask for: A100." in text
    assert "never started" in text


def test_a_trace_without_times_is_spread_over_minutes(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,32000,100000,8,T4\n")
    rows = "p0,1000,1000,2,1000,T4|V100M16\np1,1000,1000,1,500,\n"
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + rows)
    text = simulate(nodes=nodes, pods=pods)
    assert "No host" not in text
    assert "2 sessions on 1 hosts" in text
    first, second = read_pods(pods)
    assert (first.arrival_seconds, second.arrival_seconds) == (0, 60)
    assert min(first.duration_seconds, second.duration_seconds) >= 600


def test_sessions_of_missing_models_are_counted_apart(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,32000,100000,4,T4\n")
    rows = "".join(f"p{number},1000,1000,1,1000,{spec}\n" for number, spec in enumerate(("T4", "A100") * 4))
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + rows)
    trace = Trace(*read_trace(nodes, pods))
    found = [trace.allocation(PlacementPolicyName.BALANCE, seed) for seed in range(5)]
    assert {each.percent for each in found} == {100}  # what can be placed fills the host
    assert max(each.missing_percent for each in found) > 0
    _, jobs = trace.crowded(PlacementPolicyName.PACK, 8)
    assert {job.request.traits for job in jobs} == {("gpu_model:T4",)}


@pytest.mark.parametrize(
    "options", [{"nodes": Path("x")}, {"group": "nowhere"}, {"add_hosts": -1}, {"fgpu_per_gpu": 0}, {"days": 1}]
)
def test_the_command_rejects_invalid_options(options: dict[str, Any]) -> None:
    with pytest.raises(CommandError):
        simulate(**options)


def test_the_page_is_for_superadmins_only(host: Host) -> None:
    assert browser_of(make_user(is_superuser=True)).get(PAGE).status_code == 200
    assert browser_of(make_user(is_staff=True)).get(PAGE).status_code == 403
    assert browser_of(make_user()).get(PAGE).status_code == 302


def test_the_page_compares_with_figures_and_curves(host: Host) -> None:
    browser = browser_of(make_user(is_superuser=True))
    page = browser.get(PAGE, {"days": "5", "add_hosts": "2", "policy": "balance"}).content.decode()
    assert "2 more hosts, balance: mean wait -100 %" in page
    assert 'id="curves"' in page
    assert "uPlot.iife.min" in page
    assert (
        "nothing to replay"
        in browser.get(PAGE, {"days": "5", "add_hosts": "0", "group": str(make_host().group.pk)}).content.decode()
    )
    assert "errorlist" in browser.get(PAGE, {"days": "x", "add_hosts": "-1"}).content.decode()
    assert PAGE in browser.get("/admin/").content.decode()
