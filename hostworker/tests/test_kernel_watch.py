"""Who holds most of what all sessions of a host share is named, and ended where it holds too much of it."""

from collections.abc import Collection

import pytest
from pytest_django import DjangoAssertNumQueries

from hostworker.agent.kernel_watch import Excess, KernelWatch, excesses
from hostworker.privileged.base import KernelUse
from hostworker.privileged.host_privileges import HostPrivileges
from notifications.delivery.texts import text_of
from notifications.models import Notification
from resources.models import Host, HostStatus
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.factories import make_host, make_user, run_session

FILES, TASKS = "open files", "processes and threads"


class Kernel(HostPrivileges):
    """What the sessions of the test hold, by container."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, int]] = {}
        self.raised = 0

    def raise_kernel_limits(self) -> None:
        self.raised += 1

    def kernel_use(self, containers: Collection[str]) -> KernelUse:
        held = {container: self.held[container] for container in containers if container in self.held}
        return KernelUse(held=held, limits={FILES: 100, TASKS: 1000})


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def host() -> Host:
    return make_host(name="here", cpu=64, status=HostStatus.READY)


def state(session: Session) -> tuple[str, str]:
    session.refresh_from_db()
    return session.status, session.reason


@pytest.mark.parametrize(
    ("held", "found"),
    [
        ({}, []),
        ({"a": 75, "b": 0}, []),
        ({"a": 10, "b": 66}, [Excess(container="b", kind=FILES, held=66, total=76, limit=100)]),
        ({"a": 30, "b": 40, "c": 20}, [Excess(container="b", kind=FILES, held=40, total=90, limit=100)]),
    ],
)
def test_the_one_that_holds_most_is_found(held: dict[str, int], found: list[Excess]) -> None:
    use = KernelUse(held={name: {FILES: number} for name, number in held.items()}, limits={FILES: 100, TASKS: 1})
    assert excesses(use) == found


@pytest.mark.django_db
def test_who_takes_most_is_named_then_ended(host: Host, kernel: Kernel) -> None:
    admin = make_user(is_superuser=True)
    greedy, modest = run_session(host=host), run_session(host=host)
    kernel.held = {greedy.container_id: {FILES: 60}, modest.container_id: {FILES: 20}}
    watch = KernelWatch(host, kernel)
    watch.poll()
    assert state(greedy)[0] == Status.RUNNING
    (event,) = greedy.events.filter(reason=Reason.SHARED_LIMIT)
    assert "hold 80 of the 100 open files" in event.detail
    assert "this one holds most: 60." in event.detail
    told = Notification.objects.get(kind="SHARED_LIMIT")
    assert (told.user, told.facts["host"]) == (admin, host.name)
    assert text_of(told).title == f"{greedy.name} holds most of what all sessions of its host share"
    watch.poll()
    assert state(greedy) == (Status.TERMINATING, Reason.SHARED_LIMIT)
    assert state(modest)[0] == Status.RUNNING
    assert kernel.raised == 2


@pytest.mark.django_db
def test_who_takes_less_than_half_goes_on(host: Host, kernel: Kernel) -> None:
    sessions = [run_session(host=host) for _ in range(3)]
    kernel.held = {each.container_id: {FILES: 30} for each in sessions}
    watch = KernelWatch(host, kernel)
    for _ in range(3):
        watch.poll()
    assert {state(each)[0] for each in sessions} == {Status.RUNNING}
    assert sum(each.events.filter(reason=Reason.SHARED_LIMIT).count() for each in sessions) == 1


@pytest.mark.django_db
def test_without_sessions_the_limits_are_held_and_nobody_is_asked(
    host: Host, kernel: Kernel, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    watch = KernelWatch(host, kernel)
    watch.may_have_sessions = lambda: False
    with django_assert_num_queries(0):
        watch.poll()
    assert kernel.raised == 1


@pytest.mark.django_db
def test_a_moment_of_much_use_ends_nothing(host: Host, kernel: Kernel) -> None:
    session = run_session(host=host)
    watch = KernelWatch(host, kernel)
    for number in (90, 10, 90):
        kernel.held = {session.container_id: {FILES: number}}
        watch.poll()
    assert state(session)[0] == Status.RUNNING
