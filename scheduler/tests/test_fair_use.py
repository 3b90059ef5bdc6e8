"""Fair share on the database: what ended sessions have used is recorded, decays, and decides who starts next.

Seen to fail under these faults, planted in the product: the trigger forgets decay, the percentage, or sessions whose
end comes late; a cached state does not read what has ended since; weights are read from policies alone.
"""

from datetime import timedelta
from random import Random

import pytest
from django.utils import timezone

from resources.amounts.units import GIB
from scheduler.core.queue.fair_share import FairShares
from scheduler.core.types import Association, Rules, RunningSession
from scheduler.cycle import passes
from scheduler.snapshot import queue as snapshot
from scheduler.snapshot.fair_use import load_weights
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import FairUse, Session
from tests.factories import make_group, make_host, make_policy, make_session, make_user, run_session

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def test_what_sessions_used_is_recorded_as_the_core_counts_it() -> None:
    random, owner = Random(1), make_user()
    group = make_group(queue_order="fair", half_life=6 * HOUR)
    host = make_host(group=group, gpus=4)
    shares = FairShares([], Rules(half_life=6 * HOUR), [], {}, {})
    for _ in range(6):
        session = run_session(host=host, owner=owner, cpu=2, fgpu=500, charge_percent=random.choice([50, 100]))
        begun = timezone.now() - random.randint(1, 2000) * HOUR / 60
        Session.objects.filter(pk=session.pk).update(started_at=begun)
        session.refresh_from_db()
        session.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
        assert session.ended_at
        charged = session.charge_percent
        ran = RunningSession(session.pk, owner.pk, host.pk, 2, GIB, ((1, 500),), begun, charge_percent=charged)
        shares.add(ran)
        shares.remove(ran, session.ended_at)
    use, expected = FairUse.objects.get(user=owner, group=group), shares.used[Association(0, owner.pk)]
    assert use.at == expected.at
    amounts = (use.cpu_seconds, use.memory_byte_seconds, use.fgpu_milli_seconds)
    assert amounts == pytest.approx(expected[:3], rel=1e-9)


def test_only_what_has_run_is_charged() -> None:
    host = make_host()
    services.terminate(waiting := make_session(resource_group=host.group), actor=waiting.owner)
    passes.run_pass()
    placed = make_session(resource_group=host.group)
    passes.run_pass()
    placed.refresh_from_db()
    services.terminate(placed, actor=placed.owner)
    assert not FairUse.objects.exists()


def test_an_end_that_is_written_late_counts_at_its_time() -> None:
    owner, host = make_user(), make_host(group=make_group(half_life=HOUR))
    now = timezone.now()
    for ended in (now, now - HOUR, now - 9999 * HOUR):
        session = run_session(host=host, owner=owner)
        begun = {"started_at": ended - HOUR, "ended_at": ended, "status": Status.TERMINATED.value}
        session.lease.delete()
        Session.objects.filter(pk=session.pk).update(**begun)
    use = FairUse.objects.get()
    assert use.at == now
    assert use.cpu_seconds == pytest.approx(1.5 * 3600 * 0.5 / 0.693147, rel=1e-5)


def test_who_used_less_starts_next() -> None:
    group = make_group(queue_order="fair")
    host = make_host(group=group, cpu=8)
    heavy, light = make_user(), make_user()
    first = run_session(host=host, owner=heavy, cpu=8)
    Session.objects.filter(pk=first.pk).update(started_at=timezone.now() - 5 * HOUR)
    waiting = [make_session(owner=owner, resource_group=group, cpu=8) for owner in (heavy, light)]
    passes.run_pass()
    first.refresh_from_db()
    first.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
    assert passes.run_pass() == 1
    states = [Session.objects.get(pk=session.pk).status for session in waiting]
    assert states == [Status.PENDING, Status.SCHEDULED]
    known = passes.caches.of(group.pk).take(timezone.now()).incremental.cluster.fair_shares(group.pk)
    assert known is not None
    used = snapshot.load(timezone.now()).snapshot.used
    assert {(group.pk, holder): usage for holder, usage in known.used.items()} == used


def test_weights_are_the_users_or_their_policys() -> None:
    policy = make_policy(share_weight=300)
    by_policy, own, _plain = make_user(policy=policy), make_user(policy=policy, share_weight=50), make_user()
    assert load_weights() == {Association(0, by_policy.pk): 300, Association(0, own.pk): 50}
    host = make_host(group=make_group(queue_order="fair"), cpu=4)
    for owner in (own, by_policy):
        for _ in range(4):
            make_session(owner=owner, resource_group=host.group)
    passes.run_pass()
    started = list(Session.objects.filter(status=Status.SCHEDULED).values_list("owner_id", flat=True))
    assert (started.count(by_policy.pk), started.count(own.pk)) == (3, 1)
    own.share_weight = 900
    own.save()
    shares = passes.caches.of(host.group_id).take(timezone.now()).incremental.cluster.fair_shares(host.group_id)
    assert shares is not None
    assert shares.weight(Association(0, own.pk)) == 900
