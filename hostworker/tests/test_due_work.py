"""One query says which kinds of work a host has; a kind that it does not name is left for a while."""

import math
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import ProgrammingError, connection
from django.utils import timezone

from deployments.replicas.reconciliation import reconcile
from deployments.tests.making import make_deployment
from folders.models import HostRoot, QuotaSupport
from hostworker.agent import due_work
from hostworker.agent.due_work import DueWork, Work
from resources.hosts import services as hosts
from resources.models import Host, HostHealth, HostImage, HostStatus, ImagePull
from sessions.lifecycle import Kind, Status
from sessions.models import ChangeReport, Conversion, EndpointState, Mount, Session
from tests.factories import (
    make_endpoint,
    make_folder,
    make_host,
    make_image,
    make_root,
    make_user,
    parked_session,
    run_session,
    scheduled_cluster,
    session_in,
)

pytestmark = pytest.mark.django_db


def have_unready(host: Host) -> None:
    hosts.declare_joining(host)


def have_parked(host: Host) -> None:
    parked_session(host=host)


def have_app(host: Host) -> None:
    make_endpoint(run_session(host=host), state=EndpointState.STARTING)


def have_replica(host: Host) -> None:
    reconcile(make_deployment(host=host).pk)
    run_session(Session.objects.get(kind=Kind.REPLICA), host=host)


def have_conversion(host: Host) -> None:
    Conversion.objects.create(session=run_session(host=host), host=host, name="mine", tag="1", reference="mine:1")


def have_deleted_image(host: Host) -> None:
    image = make_image(removed_at=timezone.now())
    HostImage.objects.create(host=host, image=image, size=1, seen_at=timezone.now())


def have_report(host: Host) -> None:
    ChangeReport.objects.create(session=run_session(host=host), attempt=1)


def have_pull(host: Host) -> None:
    ImagePull.objects.create(host=host, image=make_image())


def have_probe(host: Host) -> None:
    past = timezone.now() - timedelta(seconds=1)
    HostHealth.objects.create(host=host, faulty_since=past, probe_at=past)


def have_foreign_folder(host: Host) -> None:
    Mount.objects.create(
        session=run_session(host=host), folder=make_folder(make_user()), path="/data", is_read_only=True
    )


def have_unmeasured_folder(host: Host) -> None:
    root = make_root(host)
    make_folder(root=root, measure_due_at=timezone.now())


def have_enforced_root(host: Host) -> None:
    make_root(host)
    HostRoot.objects.filter(host=host).update(quota_support=QuotaSupport.ENFORCED)


def have_writable_folder(host: Host) -> None:
    session = run_session(host=host)
    Mount.objects.create(session=session, folder=make_folder(session.owner), path="/data")


CASES = [
    (have_unready, Work.READINESS),
    (have_parked, Work.SESSIONS),
    (lambda host: session_in(Status.SCHEDULED, host=host), Work.SESSIONS),
    (lambda host: scheduled_cluster(host, host), Work.CLUSTERS),
    (have_app, Work.APPS),
    (have_replica, Work.REPLICAS),
    (have_conversion, Work.CONVERSIONS),
    (have_deleted_image, Work.CONVERSIONS),
    (have_report, Work.CONVERSIONS),
    (have_pull, Work.PULLS),
    (have_probe, Work.PROBE),
    (have_foreign_folder, Work.SHARES),
    (have_unmeasured_folder, Work.MEASUREMENTS),
    (have_enforced_root, Work.LIMITS),
    (have_writable_folder, Work.QUOTAS),
]


def asked(host: Host) -> DueWork:
    """Return what has looked for each kind of work once, and has an answer."""
    due = DueWork(host)
    for work in Work:
        assert due.is_due(work)
    due.is_due(Work.PULLS)
    return due


def found(host: Host) -> set[Work]:
    due = asked(host)
    return {work for work in Work if due.is_due(work)}


@pytest.mark.parametrize(("have", "work"), CASES)
def test_work_is_due_on_the_host_that_has_it(have: Callable[[Host], object], work: Work) -> None:
    host, other = make_host(), make_host(cluster_address="10.0.0.2")
    have(host)
    assert found(host) in ({work}, {work, Work.SESSIONS})
    assert found(other) == set()


def test_every_kind_has_a_case() -> None:
    assert {work for _, work in CASES} == set(Work)


def test_a_removed_host_has_no_work() -> None:
    host = make_host()
    Host.objects.all().delete()
    assert found(host) == set()


def test_each_kind_is_due_at_first_and_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    due = asked(make_host())
    assert not any(due.is_due(work) for work in Work)
    monkeypatch.setattr(due_work, "FULL_SECONDS", 0)
    assert [due.is_due(work) for work in Work] == [True] * len(Work)


def test_the_loops_share_an_answer_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_work, "ASK_SECONDS", math.inf)
    host = make_host()
    due = asked(host)
    have_pull(host)
    assert not due.is_due(Work.PULLS)
    monkeypatch.setattr(due_work, "ASK_SECONDS", 0)
    assert due.is_due(Work.PULLS)


def test_a_host_that_has_withdrawn_itself_asks_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_work, "ASK_SECONDS", math.inf)
    host = make_host(status=HostStatus.READY)
    due = asked(host)
    hosts.declare_joining(host)
    due.forget()
    assert due.is_due(Work.READINESS)


def test_a_message_has_the_host_ask_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_work, "ASK_SECONDS", math.inf)
    host = make_host()
    due = asked(host)
    with due_work.follows(host.name):
        assert not due.is_due(Work.PULLS)
        have_pull(host)
        assert not due.is_due(Work.PULLS)
    assert due.is_due(Work.PULLS)  # what the message has led to
    with due_work.follows("unknown"):
        pass


def test_an_error_of_the_database_is_one_of_django() -> None:
    due = DueWork(make_host())
    due._question = ("SELECT nothing FROM nowhere", ())
    for work in Work:
        assert due.is_due(work)
    with pytest.raises(ProgrammingError):
        due.is_due(Work.PULLS)


def test_the_statement_is_prepared() -> None:
    asked(make_host())
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%resources_imagepull%'")
        assert cursor.fetchone() == (1,)


def test_the_host_alone_is_a_parameter_of_the_plan() -> None:
    """A plan that serves any host finds its sessions by the index of their statuses, so it is made once."""
    host = make_host()
    sql, parameters = due_work._question(host)
    assert all(each == host.pk for each in parameters)
    with connection.cursor() as cursor:
        for setting in ("enable_seqscan = off", "plan_cache_mode = force_generic_plan"):
            cursor.execute(f"SET LOCAL {setting}")
        cursor.execute(f"PREPARE question (integer) AS {sql.replace('%s', '$1')}")
        cursor.execute(f"EXPLAIN EXECUTE question ({host.pk})")
        plan = str(cursor.fetchall())
        cursor.execute("DEALLOCATE question")
    assert "session_on_host" in plan
