"""Stories of random faults, told at high speed to the real product: nothing is lost, and what is planted is found."""

import signal

import pytest
from django.db import connection

from resources import clock
from scheduler.provisioning import reconciler
from tests.virtual import campaign, elastic
from tests.virtual.clock import START
from tests.virtual.faults import Fault, FaultKind, Steps
from tests.virtual.machines import VirtualRuntime
from tests.virtual.operations import Teller
from tests.virtual.plants import PLANTS, planted
from tests.virtual.story import Operation, Story, shortest, story_of
from tests.virtual.verdict import Judge
from tests.virtual.world import virtual_world

SEEDS = 150


def test_a_seed_tells_the_same_story_each_time() -> None:
    assert story_of(7) == story_of(7)
    assert len({str(story_of(seed)) for seed in range(100)}) == 100


def test_of_a_failing_story_the_shortest_is_found() -> None:
    needed = {"park", "lose_power"}
    long = next(story for story in map(story_of, range(10_000)) if needed <= {each.name for each in story.operations})
    found = shortest(long, lambda story: needed <= {each.name for each in story.operations})
    assert {each.name for each in found.operations} == needed
    assert {(each.which, each.amount, each.fault) for each in found.operations} == {(0, 0, None)}
    assert found.hosts == 1


def test_no_story_has_the_engine_of_an_earlier_one() -> None:
    for _ in range(100):  # the memory of one is soon another's
        runtime = VirtualRuntime(Steps(), "host")
        assert runtime.images.has("image")
        runtime.remove_image("image", can_pull=True)


@pytest.mark.long(minutes=8)
@pytest.mark.django_db(transaction=True)
def test_no_story_of_faults_loses_or_leaves_anything(capsys: pytest.CaptureFixture[str]) -> None:
    result = campaign.run(range(SEEDS))
    with capsys.disabled():
        print(f"\n{result.as_json()}")  # noqa: T201
    assert not result.failing
    assert result.counts["seeds"] == SEEDS
    assert result.counts["sessions"] > SEEDS
    assert result.faults.keys() >= {FaultKind.KILLED, FaultKind.DATABASE_ERROR, FaultKind.CUT_OFF}


@pytest.mark.long(minutes=1)
@pytest.mark.django_db(transaction=True)
def test_no_story_of_an_elastic_pool_wastes_or_lies(capsys: pytest.CaptureFixture[str]) -> None:
    figures = elastic.run(range(3))
    with capsys.disabled():
        print(f"\n{figures}")  # noqa: T201
    assert not figures["failing"]
    assert sum(figures["faults"].values()) > 100


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_a_pool_that_keeps_its_hosts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "_is_spare", lambda *_: False)
    assert elastic.run(range(1))["unneeded"]


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_members_on_a_gone_host_end_once_it_is_lost() -> None:
    """Until it has been silent for long enough, one is TERMINATING on it, whose cluster has ended elsewhere."""
    story = Story(
        2,
        (
            Operation("submit", 69, 8),
            Operation("run_pass", 0, 542),
            Operation("terminate", 106, 58),
            Operation("deliver", 1580, 2356, Fault(FaultKind.CUT_OFF, 9)),
            Operation("lose_host", 2079, 782),
        ),
    )
    with virtual_world() as world:
        world.reset(story.hosts)
        assert Judge(world).judge(story).problems == []


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_an_array_held_for_want_of_accelerators_is_no_fault() -> None:
    story = Story(1, (Operation("submit_array", 0, 2), Operation("pull_gpu")))
    with virtual_world() as world:
        world.reset(story.hosts)
        judge = Judge(world)
        assert judge.judge(story).problems == []
        assert any(judge.teller.askers.values()), "its owner has given it up"


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_a_story_without_an_end_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "STORY_SECONDS", 1)
    monkeypatch.setattr(campaign, "SHORTENING_SECONDS", 0.0)
    monkeypatch.setattr(Teller, "submit", lambda *_: signal.pause())
    [failing] = campaign.run(range(1)).failing
    assert failing["seed"] == 0
    assert any(text.startswith("it has not ended: <lambda> ") for text in failing["problems"])


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_every_planted_fault_is_found_by_its_story() -> None:
    with virtual_world() as world:

        def problems(story: Story) -> list[str]:
            world.reset(story.hosts)
            return Judge(world).judge(story).problems

        for name, plant in PLANTS.items():
            assert problems(plant.story) == [], name
            with planted(name):
                assert problems(plant.story), name


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_another_connection_brings_no_other_time() -> None:
    with virtual_world() as world:
        world.reset(1)
        late = connection.copy("late")  # as of the pool, which may fill while a story is told
        late.ensure_connection()
        late.close()
        assert clock.now().year == START.year
