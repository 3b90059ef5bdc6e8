"""What must never be stored is refused by the database itself, whatever code writes it."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from resources.amounts.units import GIB
from resources.models import Gpu, Host, ResourceGroup
from sessions.lifecycle import Status
from sessions.models import GpuShare, Lease, Session
from tests.factories import make_gpu, make_group, make_host, make_session, run_session
from tests.wait import SECONDS


def hold(session: Session, host: Host, shares: dict[Gpu, int] | None = None) -> None:
    """Write the session as SCHEDULED on the host with its lease, as the scheduler does, but unplanned."""
    Session.objects.filter(pk=session.pk).update(status=Status.SCHEDULED, host=host)
    lease = Lease.objects.create(session=session, host=host, cpu=session.cpu, memory=session.memory)
    GpuShare.objects.bulk_create(GpuShare(lease=lease, gpu=gpu, milli=milli) for gpu, milli in (shares or {}).items())


def commit(write: Callable[[], object]) -> None:
    """Run `write` in a transaction of its own, as far as a test that is rolled back can."""
    with transaction.atomic():
        write()
        check_now()


def refused(constraint: str, write: Callable[[], object]) -> None:
    """Run `write` in a transaction of its own and expect its end to fail on the constraint."""
    check_now()  # what was set up before is in order, and not judged again below
    with pytest.raises(IntegrityError) as caught:
        commit(write)
    assert caught.value.__cause__.diag.constraint_name == constraint  # type: ignore[union-attr]


def raw(statement: str, *parameters: object) -> None:
    """Run a statement as a stranger to the models might."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)  # type: ignore[arg-type]


def check_now() -> None:
    """Let the constraints that are due at the commit speak now."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")


DELETE_SESSION = (
    "WITH events AS (DELETE FROM compute_sessionevent), told AS (DELETE FROM notifications_notification)"
    " DELETE FROM compute_session WHERE id = %s"
)


@pytest.fixture
def host(db: None) -> Host:
    """A host of 4 cores, 8 GiB and one GPU of 2 fGPU."""
    return make_host(gpus=1, cpu=4, memory=8 * GIB)


@pytest.fixture
def gpu(host: Host) -> Gpu:
    return host.gpus.get()


def test_cores_beyond_the_host_are_refused(host: Host) -> None:
    run_session(host=host, cpu=3)
    refused("lease_within_host", lambda: hold(make_session(cpu=2), host))
    hold(make_session(cpu=1), host)
    check_now()


def test_memory_beyond_the_host_is_refused(host: Host) -> None:
    run_session(host=host, memory=6 * GIB)
    refused("lease_within_host", lambda: hold(make_session(memory=2 * GIB + 1), host))
    hold(make_session(memory=2 * GIB), host)
    check_now()


def test_a_lease_cannot_grow_beyond_the_host(host: Host) -> None:
    lease = Lease.objects.get(session=run_session(host=host))
    refused("lease_within_host", lambda: Lease.objects.filter(pk=lease.pk).update(cpu=5))


def test_shares_beyond_the_gpu_are_refused(host: Host, gpu: Gpu) -> None:
    run_session(host=host, fgpu=1500)
    refused("shares_within_gpu", lambda: hold(make_session(fgpu=510), host, {gpu: 510}))
    hold(make_session(fgpu=500), host, {gpu: 500})
    check_now()


def test_a_share_cannot_grow_beyond_the_gpu(host: Host) -> None:
    run_session(host=host, fgpu=1500)
    refused("shares_within_gpu", lambda: GpuShare.objects.update(milli=2010))


def test_a_share_of_another_hosts_gpu_is_refused(host: Host) -> None:
    elsewhere = make_gpu(host=make_host(group=host.group))
    refused("grant_is_request", lambda: hold(make_session(fgpu=500), host, {elsewhere: 500}))


def test_session_lease_and_gpu_share_one_host(host: Host) -> None:
    session = run_session(host=host, fgpu=500)
    other = make_host(group=host.group)

    def move() -> None:
        Session.objects.filter(pk=session.pk).update(host=other)
        Lease.objects.filter(session=session).update(host=other)

    refused("grant_is_request", move)


def test_a_hosted_session_without_a_lease_is_refused(host: Host) -> None:
    session = run_session(host=host)
    refused("grant_is_request", lambda: Lease.objects.filter(session=session).delete())
    waiting = Session.objects.filter(pk=make_session().pk)
    refused("grant_is_request", lambda: waiting.update(status=Status.SCHEDULED, host=host))


def test_a_lease_without_a_hosted_session_is_refused(host: Host) -> None:
    session = make_session()
    refused("grant_is_request", lambda: Lease.objects.create(session=session, host=host, cpu=1, memory=GIB))
    running = Session.objects.filter(pk=run_session(host=host).pk)
    refused("grant_is_request", lambda: running.update(status=Status.ERROR, ended_at=timezone.now()))


def test_leases_and_shares_never_outlive_their_parents(host: Host) -> None:
    session = run_session(host=host, fgpu=500)
    refused("grant_is_request", lambda: raw("DELETE FROM compute_lease WHERE session_id = %s", session.pk))
    refused("grant_is_request", lambda: raw(DELETE_SESSION, session.pk))
    refused("grant_is_request", lambda: raw("UPDATE compute_lease SET session_id = 'nobody'"))
    assert GpuShare.objects.get().lease.session == session


def test_orphaned_shares_and_leases_are_refused(host: Host, gpu: Gpu) -> None:
    refused("grant_is_request", lambda: raw("INSERT INTO compute_lease VALUES ('nobody', 1, 1, %s)", host.pk))
    share = "INSERT INTO compute_gpushare (lease_id, gpu_id, milli) VALUES (%s, %s, 500)"
    refused("grant_is_request", lambda: raw(share, "nobody", gpu.pk))
    refused("grant_is_request", lambda: raw(share, make_session(fgpu=500).pk, gpu.pk))


def test_a_share_of_no_gpu_is_refused(host: Host, gpu: Gpu) -> None:
    session = run_session(host=host, fgpu=500)
    refused("share_gpu_exists", lambda: GpuShare.objects.filter(lease=session.pk).update(gpu=gpu.pk + 1))
    refused("share_gpu_exists", lambda: raw("DELETE FROM resources_gpu WHERE id = %s", gpu.pk))


def test_a_host_with_leases_cannot_go(host: Host) -> None:
    run_session(host=host)
    with pytest.raises(IntegrityError):
        commit(lambda: raw("DELETE FROM resources_gpu; DELETE FROM resources_host WHERE id = %s", host.pk))


def test_a_lease_cannot_be_handed_to_another_session(host: Host) -> None:
    held, other = Lease.objects.filter(session=run_session(host=host)), make_session()

    def hand_over() -> None:
        Session.objects.filter(pk=other.pk).update(status=Status.SCHEDULED, host=host)
        held.update(session=other)

    refused("grant_is_request", hand_over)


@pytest.mark.parametrize("change", [{"cpu": 2}, {"memory": 2 * GIB}])
def test_a_lease_must_equal_the_request(host: Host, change: dict[str, int]) -> None:
    session = run_session(host=host)
    refused("grant_is_request", lambda: Lease.objects.filter(session=session).update(**change))
    refused("grant_is_request", lambda: Session.objects.filter(pk=session.pk).update(**change))


@pytest.mark.parametrize("milli", [490, 510])
def test_shares_that_are_not_the_request_are_refused(host: Host, gpu: Gpu, milli: int) -> None:
    refused("grant_is_request", lambda: hold(make_session(fgpu=500), host, {gpu: milli}))
    refused("grant_is_request", lambda: hold(make_session(fgpu=500), host))


def test_the_lease_is_on_the_sessions_host(host: Host) -> None:
    session = run_session(host=host)
    elsewhere = make_host(group=host.group)
    refused("grant_is_request", lambda: Lease.objects.filter(session=session).update(host=elsewhere))


def test_fgpu_per_gpu_is_fixed_under_leases(host: Host) -> None:
    groups = ResourceGroup.objects.filter(pk=host.group_id)
    groups.update(fgpu_per_gpu=3)
    run_session(host=Host.objects.get(pk=host.pk))
    refused("group_unit_fixed_while_leased", lambda: groups.update(fgpu_per_gpu=2))
    groups.update(fgpu_per_gpu=3, description="the same cut")


def test_a_host_stays_in_its_group_while_leased(host: Host) -> None:
    hosts, other = Host.objects.filter(pk=host.pk), make_group()
    run_session(host=host)
    refused("host_group_fixed_while_leased", lambda: hosts.update(group=other))
    Lease.objects.get().session.delete()
    hosts.update(group=other)


def test_a_gpu_with_shares_stays_on_its_host(host: Host, gpu: Gpu) -> None:
    gpus, other = Gpu.objects.filter(pk=gpu.pk), make_host(group=host.group)
    run_session(host=host, fgpu=500)
    refused("gpu_host_fixed_while_leased", lambda: gpus.update(host=other))
    Lease.objects.get().session.delete()
    gpus.update(host=other)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("amounts", "constraint"),
    [
        ({"fgpu": 1200}, "shares_within_gpu"),
        ({"cpu": 3}, "lease_within_host"),
        ({"memory": 5 * GIB}, "lease_within_host"),
    ],
)
def test_one_of_two_conflicting_leases_wins(amounts: dict[str, int], constraint: str) -> None:
    host = make_host(gpus=1, cpu=4, memory=8 * GIB)
    gpu = host.gpus.get()
    sessions = [make_session(resource_group=host.group, **amounts) for _ in range(2)]

    def take(session: Session) -> None:
        hold(session, host, {gpu: session.fgpu} if session.fgpu else {})

    assert at_the_same_moment(take, sessions) == sorted([constraint, "won"])
    assert Lease.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_one_of_two_conflicting_shares_grows() -> None:
    host = make_host(gpus=1)
    sessions = [run_session(host=host, fgpu=500) for _ in range(2)]

    def grow(session: Session) -> None:
        GpuShare.objects.filter(lease=session.pk).update(milli=1200)
        Session.objects.filter(pk=session.pk).update(fgpu=1200)

    assert at_the_same_moment(grow, sessions) == ["shares_within_gpu", "won"]


def at_the_same_moment(write: Callable[[Session], object], sessions: list[Session]) -> list[str]:
    """Write for each session in a transaction of its own; return the constraint that refused it, or "won", sorted."""
    both_open = threading.Barrier(len(sessions), timeout=SECONDS)

    def attempt(session: Session) -> str:
        try:
            with transaction.atomic():
                Session.objects.filter(pk=session.pk).exists()  # the transaction has begun
                both_open.wait()
                write(session)
        except IntegrityError as error:
            return str(error.__cause__.diag.constraint_name)  # type: ignore[union-attr]
        finally:
            connection.close()
        return "won"

    with ThreadPoolExecutor(len(sessions)) as threads:
        return sorted(threads.map(attempt, sessions))
