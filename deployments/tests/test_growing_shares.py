"""A replica gets a bigger share of its GPU before another comes: what looks do, and what they fall back to."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from deployments import services
from deployments.models import Deployment
from deployments.replicas.reconciliation import reconcile
from deployments.scaling import autoscaler
from deployments.scaling import services as scaling
from deployments.tests.making import heal, revision_request, run_replicas, serving_deployment
from deployments.tests.test_autoscaler import report, said
from resources import clock
from resources.models import Host
from sessions.errors import RejectedError
from sessions.models import Session
from sessions.resizing import services as resizing
from sessions.resizing.sizes import SessionSize, StoredResize
from tests.factories import make_host, make_policy, make_user, run_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def host() -> Host:
    """A host with one GPU of 2 fGPU."""
    return make_host(gpus=1)


@pytest.fixture(autouse=True)
def _moving_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", _Clock(clock.now()))


class _Clock:
    def __init__(self, begin: datetime) -> None:
        self.now = begin

    def __call__(self) -> datetime:
        return self.now


def growing(host: Host, replicas: int = 1, *, fgpu: int = 200, max_fgpu: int = 800, **overrides: Any) -> Deployment:
    deployment = serving_deployment(replicas, host=host, revision=revision_request(fgpu=fgpu), **overrides)
    fields = {"max_replicas": 3, "max_fgpu": max_fgpu, "down_after_seconds": 10, "cooldown_seconds": 0}
    scaling.change(deployment, fields, actor=deployment.owner)
    scaling.add_rule(deployment, metric="outstanding", target=10, actor=deployment.owner)
    return deployment


def look(deployment: Deployment, outstanding: int, *, times: int = 1) -> tuple[int, list[int]]:
    """Let the autoscaler look, and hosts apply what it asked for; return replicas wanted and shares."""
    for _ in range(times):
        assert isinstance(clock.now, _Clock)
        clock.now.now += timedelta(seconds=2)
        report(deployment, outstanding=outstanding)
        autoscaler.look()
        reconcile(deployment.pk)
        finish_resizes()
    sessions = Session.objects.filter(replica__deployment=deployment).order_by("created_at")
    return Deployment.objects.get(pk=deployment.pk).replicas, list(sessions.values_list("fgpu", flat=True))


def make_ready(deployment: Deployment, host: Host) -> None:
    """Have the replicas that wait run and be healthy."""
    heal(*run_replicas(deployment, host))


def resize(deployment: Deployment, share: int) -> None:
    """Have the host of each replica be asked for this share."""
    for replica in deployment.replica_rows.select_related("session"):
        size = SessionSize(cpu=replica.session.cpu, memory=replica.session.memory, fgpu=share)
        resizing.resize(replica.session, size, actor=deployment.owner)


def finish_resizes() -> None:
    """Have hosts apply what was asked of them."""
    for session in Session.objects.filter(resize__isnull=False):
        stored = StoredResize.of(session)
        assert stored is not None
        resizing.finish(session.pk, stored.id)


def test_a_replica_grows_to_its_most_before_another_comes(host: Host) -> None:
    deployment = growing(host)
    assert look(deployment, 20) == (1, [400])
    assert said(deployment) == "Each replica gets at least 0.4 fGPU: 20 requests outstanding, 10 a replica."
    assert look(deployment, 60) == (1, [800])
    assert look(deployment, 100) == (2, [800, 200])
    assert said(deployment).startswith("Scaled from 1 to 2: ")


def test_the_big_replica_stays_big_at_peak_load(host: Host) -> None:
    deployment = growing(host)
    assert look(deployment, 100, times=3) == (2, [800, 200])
    make_ready(deployment, host)
    totals = [1000, *[sum(look(deployment, 100)[1]) for _ in range(4)]]
    assert totals == sorted(totals)
    assert look(deployment, 100)[1][0] == 800


def test_a_share_that_never_counted_is_given_back(host: Host) -> None:
    deployment = growing(host, fgpu=500, max_fgpu=1000)
    resize(deployment, 900)
    finish_resizes()
    assert look(deployment, 5, times=2) == (1, [500])


def test_it_shrinks_once_the_spare_replicas_have_gone(host: Host) -> None:
    deployment = growing(host, 2)
    resize(deployment, 800)
    wanted, held = look(deployment, 5, times=40)
    assert (wanted, sorted(held)) == (1, [200, 800])  # one drains as it is
    said = list(deployment.events.values_list("what", flat=True))[:2]
    assert [what[:16] for what in said] == ["Each replica get", "Scaled from 2 to"]


def test_without_room_on_its_gpu_another_replica_comes(host: Host) -> None:
    deployment = growing(host)
    run_session(host=host, fgpu=1700)
    assert look(deployment, 20) == (2, [200, 200])


def test_a_resize_that_its_host_refused_is_not_repeated(host: Host) -> None:
    deployment = growing(host)
    report(deployment, outstanding=20)
    autoscaler.look()
    stored = StoredResize.of(Session.objects.get(replica__deployment=deployment))
    assert stored is not None
    resizing.finish(deployment.replica_rows.get().pk, stored.id, "It uses more.")
    assert look(deployment, 20, times=20) == (2, [200, 200])


def test_a_policy_bounds_what_grows(host: Host) -> None:
    owner = make_user(policy=make_policy(fgpu=700))
    deployment = growing(host, owner=owner)
    assert look(deployment, 20) == (1, [400])
    assert look(deployment, 60) == (3, [400, 200, 200])


def test_nothing_grows_while_a_revision_is_rolled_out(host: Host) -> None:
    deployment = growing(host)
    services.new_revision(deployment, revision_request(fgpu=200), actor=deployment.owner)
    look(deployment, 0)
    assert look(deployment, 40)[0] == 2
    assert not deployment.events.filter(what__startswith="Each replica").exists()


@pytest.mark.parametrize(
    ("share", "fgpu", "is_refused"),
    [(400, 200, False), (390, 200, True), (100, 200, True), (2000, 200, True)],
)
def test_only_a_larger_part_of_one_gpu_is_allowed(host: Host, share: int, fgpu: int, is_refused: bool) -> None:
    deployment = serving_deployment(1, host=host, revision=revision_request(fgpu=fgpu))
    fields = {"max_replicas": 3, "max_fgpu": share}
    if not is_refused:
        assert scaling.change(deployment, fields, actor=deployment.owner).max_fgpu == share
        return
    with pytest.raises(RejectedError) as refused:
        scaling.change(deployment, fields, actor=deployment.owner)
    assert set(refused.value.errors) == {"max_fgpu"}


def test_replicas_without_a_gpu_do_not_grow() -> None:
    deployment = serving_deployment(1)
    with pytest.raises(RejectedError) as refused:
        scaling.change(deployment, {"max_replicas": 3, "max_fgpu": 500}, actor=deployment.owner)
    assert refused.value.errors["max_fgpu"] == "Only a replica with a part of one GPU grows."
