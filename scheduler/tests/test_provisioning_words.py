"""What those who wait, park or administer are told of hosts that are made."""

from datetime import timedelta
from threading import Event

from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from notifications.delivery.ends import announce_parked_ends
from notifications.kinds import NoticeKind
from notifications.models import Notification
from resources.amounts.units import GIB
from resources.elastic.providers import ProvidedState
from resources.models import END_BEFORE, ElasticHost, ElasticPool, ElasticState, Host, HostStatus
from scheduler.cycle.threads import GroupCycles
from scheduler.provisioning import demand, reconciler
from scheduler.snapshot import elastic_hosts
from scheduler.tests.machines import MINUTE, SMALL, Machines, detail_of, join, look, make_pool, move_back, submit
from sessions.launching import services
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from sessions.parking import services as parking
from sessions.sweeps import HOST_RETURNED, enforce_deadlines
from tests.factories import make_host, make_policy, make_session, make_user, parked_session, run_session
from tests.wait import until


def test_who_waits_hears_that_the_budget_is_used_up(machines: Machines) -> None:
    pool = make_pool(hosts_per_hour=1)
    sessions = submit(pool.group, 5)
    join(look()[0])
    look(2)
    assert "the budget of the resource group is used up" in detail_of(sessions[-1])


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


def test_what_a_coming_host_waits_for_is_shown(machines: Machines) -> None:
    submit(make_pool().group)
    row = look()[0]
    for reason in ("Priority", "Resources", ""):
        machines.set(row.identifier, row.name, ProvidedState.PENDING, reason=reason)
        assert look()[0].reason == reason


def test_a_provider_that_refuses_is_quoted(machines: Machines) -> None:
    pool = make_pool()
    session = submit(pool.group)[0]
    machines.refusal = "quota exceeded"
    row = look(2)[0]
    assert (row.state, row.reason) == (ElasticState.FAILED, "quota exceeded")
    assert "did not come: quota exceeded; trying again at" in detail_of(session)


def test_a_provider_that_is_away_changes_nothing(machines: Machines) -> None:
    pool = make_pool()
    submit(pool.group)
    look()
    session = Session.objects.get()
    machines.failure = "the cloud does not answer"
    states = [row.state for row in look(3)]
    assert states == [ElasticState.JOINING]
    pool.refresh_from_db()
    assert pool.silent_since is not None
    said = f"has not answered since {pool.silent_since:%H:%M} UTC: the cloud does not answer."
    assert said in detail_of(session)
    assert session.eta is None, "nothing is promised meanwhile"
    machines.failure = ""
    assert [row.state for row in look()] == [ElasticState.JOINING]
    assert "A host comes at about" in detail_of(session)
    assert session.eta is not None


def test_a_late_host_is_expected_at_no_time(machines: Machines) -> None:
    pool = make_pool()
    session = submit(pool.group)[0]
    row = look()[0]
    assert detail_of(session)
    row.refresh_from_db()
    ElasticHost.objects.update(expected_at=timezone.now() - MINUTE)
    look()
    assert "it takes longer than usual to come" in detail_of(session)
    assert session.eta is None


def test_hosts_are_expected_by_what_their_type_took(machines: Machines) -> None:
    pool = make_pool(host_types=[SMALL, SMALL | {"name": "other"}])
    now = timezone.now()
    for name, minutes in (("small", 4), ("small", 6), ("other", 20)):
        joined_at = now - MINUTE
        fields = {"type_name": name, "created_at": joined_at - minutes * MINUTE, "joined_at": joined_at}
        ElasticHost.objects.create(pool=pool, name=f"h{minutes}", cost_per_hour=1, state=ElasticState.ENDED, **fields)
    spans = {name: elastic_hosts.join_time(pool, name) / MINUTE for name in ("small", "other", "new")}
    assert spans == {"small": 5, "other": 20, "new": 10}


def test_a_host_that_nobody_could_use_is_a_failure(machines: Machines) -> None:
    pool = make_pool()
    session = submit(pool.group)[0]
    row = look()[0]
    make_host(name=row.name, group=pool.group, gpus=1, cpu=8, memory=GIB // 2)
    assert [each.state for each in look(2)] == [ElasticState.UP], "it may not have reported all it has"
    move_back(row, MINUTE)
    Session.objects.update(created_at=timezone.now() - MINUTE)
    assert look()[0].reason == reconciler.UNUSED
    pool.refresh_from_db()
    row.refresh_from_db()
    assert f"A host came at {row.joined_at:%H:%M} UTC, but no session that waits could start" in pool.problem
    assert pool.problem in detail_of(session)
    move_back(row, MINUTE)
    assert [each.state for each in look()] == [ElasticState.ENDED]


def test_the_state_is_read_once_for_all_idle_hosts(machines: Machines) -> None:
    pool = make_pool(min_hosts=3)
    for row in look():
        join(row)
    look()
    rows = look()
    counts = []
    for some in (rows[:1], rows):
        with CaptureQueriesContext(connection) as queries:
            assert demand.hosts_of_no_use(pool, some, timezone.now() + MINUTE) == set()
        counts.append(len(queries))
    assert counts[0] == counts[1] > 0


def test_a_host_that_nobody_needs_any_more_is_none(machines: Machines) -> None:
    pool = make_pool()
    session = submit(pool.group)[0]
    row = look()[0]
    services.terminate(session, actor=session.owner)
    join(row)
    look()
    move_back(row, pool.cool_down)
    look()
    move_back(row, MINUTE)
    assert look(2)[0].state == ElasticState.ENDED
    pool.refresh_from_db()
    assert (pool.failures, pool.problem, pool.retry_at) == (0, "", None)


def test_parked_sessions_keep_a_host_for_a_while(machines: Machines) -> None:
    pool = make_pool(max_parked_time=timedelta(days=3))
    row, session = parked(pool)
    move_back(row, 2 * pool.cool_down)
    assert look()[0].state == ElasticState.UP
    assert parking.retained_until(session) == session.status_at + timedelta(days=3)
    Session.objects.update(status_at=timezone.now() - timedelta(days=2, hours=1))
    assert announce_parked_ends() == 1, "its owner hears of it a day before"
    Session.objects.update(status_at=timezone.now() - timedelta(days=4))
    enforce_deadlines()
    session.refresh_from_db()
    assert (session.status, session.reason) == (Status.TERMINATED, Reason.PARK_TIMEOUT)
    assert session.detail == HOST_RETURNED
    assert look()[0].idle_since is not None


def test_parked_sessions_end_before_their_host(machines: Machines) -> None:
    row, session = parked(make_pool())
    ends_at = timezone.now() + 10 * MINUTE
    ElasticHost.objects.update(ends_at=ends_at)
    assert parking.retained_until(session) == ends_at - END_BEFORE
    machines.hosts.clear()
    Host.objects.update(status=HostStatus.LOST, lost_at=timezone.now())
    move_back(row, 5 * MINUTE)
    look(2)
    session.refresh_from_db()
    assert (session.status, session.reason, session.detail) == (
        Status.TERMINATED,
        Reason.FILES_LOST,
        reconciler.FILES_GONE,
    )
    assert not Host.objects.exists()


def parked(pool: ElasticPool) -> tuple[ElasticHost, Session]:
    """Have a host come, and a session be parked there."""
    waiting = submit(pool.group)[0]
    row = look()[0]
    host = join(row)
    look()
    services.terminate(waiting, actor=waiting.owner)
    return row, parked_session(host=host)


def test_superadmins_hear_once_that_a_pool_fails(machines: Machines) -> None:
    admin = make_user(is_superuser=True)
    submit(make_pool().group)
    machines.refusal = "quota exceeded"
    counts = []
    for _ in range(4):
        ElasticPool.objects.update(retry_at=None)
        look()
        counts.append(Notification.objects.filter(user=admin, kind=NoticeKind.POOL_FAILING).count())
    assert counts == [0, 0, 1, 1]
    assert "did not come: quota exceeded" in Notification.objects.get().facts["detail"]


def test_superadmins_hear_once_of_a_silent_provider(machines: Machines) -> None:
    admin = make_user(is_superuser=True)
    make_pool()
    machines.failure = "no route to host"
    look()
    assert not Notification.objects.exists()
    ElasticPool.objects.update(silent_since=timezone.now() - timedelta(minutes=11))
    look(2)
    told = Notification.objects.get(user=admin)
    assert (told.kind, "no route to host" in told.facts["detail"]) == (NoticeKind.POOL_FAILING, True)


def test_a_pool_that_hangs_delays_no_other(machines: Machines) -> None:
    slow, quick = make_pool(), make_pool(min_hosts=1)
    released, entered = Event(), Event()

    def hang() -> None:
        if not entered.is_set():
            entered.set()
            assert released.wait(60)

    machines.while_listing = hang
    cycles = GroupCycles(reconciler.reconcile_pool, 2, "look at pool")
    cycles.request([slow.pk])
    assert entered.wait(60)
    try:
        cycles.request([quick.pk, slow.pk])
        until(lambda: quick.hosts.filter(state=ElasticState.JOINING).exists())
    finally:
        released.set()
        cycles.end()


def test_who_parks_hears_when_the_host_goes(machines: Machines) -> None:
    row, session = parked(make_pool(max_parked_time=timedelta(days=3)))
    make_pool(max_parked_time=timedelta(days=1))
    endless = make_user(policy=make_policy(max_parked_time=None))
    assert parking.longest(make_session(owner=endless)) is None, "it has no host"
    running = run_session(host=Host.objects.get(name=row.name))
    assert [parking.longest(each) for each in (running, session)] == [timedelta(days=3)] * 2
    ElasticHost.objects.update(ends_at=timezone.now() + timedelta(hours=5))
    left = parking.longest(running)
    assert left is not None
    assert timedelta(hours=4) < left < timedelta(hours=5) - END_BEFORE + MINUTE


def test_a_disabled_pool_without_hosts_raises_no_alarm(machines: Machines) -> None:
    make_user(is_superuser=True)
    pool = make_pool()
    machines.failure = "no route to host"
    look()
    ElasticPool.objects.update(is_enabled=False, silent_since=timezone.now() - timedelta(minutes=11), failures=3)
    look()
    pool.refresh_from_db()
    assert (pool.silent_since, pool.silence) == (None, "")
    assert not Notification.objects.exists()
