"""What users and projects hold, how many of theirs wait, and what their policies leave."""

import pytest
from pytest_django import DjangoAssertNumQueries

from accounts.limits import Amounts, PolicyLimits
from resources.amounts.units import GIB
from sessions.lifecycle import Status
from sessions.limits import held
from sessions.models import Lease, cpu_held
from tests.factories import make_group, make_host, make_policy, make_project, make_session, make_user, session_in

pytestmark = pytest.mark.django_db
POLICY = {"cpu": 10, "memory": 20 * GIB, "fgpu": 3000, "max_sessions": 6, "max_pending": 5}


def test_what_is_left_is_the_least_of_both_policies(django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    owner = make_user(policy=make_policy(**POLICY))
    host = make_host(gpus=2)
    one, other = make_project(owner, policy=make_policy(cpu=4, max_pending=1)), make_project(owner)
    session_in(Status.RUNNING, host=host, owner=owner, project=one, cpu=3, memory=2 * GIB, fgpu=500)
    session_in(Status.TERMINATING, host=host, owner=owner)
    session_in(Status.TERMINATED, owner=owner, project=one, cpu=9)
    make_session(owner=owner, project=one)
    make_session(project=other)
    own = PolicyLimits(cpu=6, memory=17 * GIB, fgpu=2500, sessions=4, pending=4)
    with django_assert_max_num_queries(4):
        left = held.left_for_each(owner, [one, other])
    assert left == {
        None: own,
        one.pk: PolicyLimits(cpu=1, memory=17 * GIB, fgpu=2500, sessions=4, pending=0),
        other.pk: own,
    }
    assert {project and project.pk: held.left_for(owner, project) for project in (None, one, other)} == left
    assert held.left_for_each(owner, []) == {None: own}


def test_cpu_held_is_what_is_guaranteed_of_the_cores() -> None:
    assert Lease.objects.aggregate(held=cpu_held()) == {"held": 0}
    host = make_host(group=make_group(cpu_overcommit=4))
    for cpu in (1, 3):
        session_in(Status.RUNNING, host=host, cpu=cpu)
    assert Lease.objects.aggregate(held=cpu_held()) == {
        "held": sum(lease.cpu * lease.core_milli for lease in host.leases.all())
    }


def test_what_is_held_is_summed_by_holder_and_group() -> None:
    owner, group = make_user(), make_group()
    project = make_project(owner)
    here = make_host(group=group, gpus=1)
    session_in(Status.RUNNING, host=here, owner=owner, project=project, cpu=2, memory=3 * GIB, fgpu=500)
    session_in(Status.SCHEDULED, owner=owner, cpu=1, memory=GIB)
    session_in(Status.PENDING, owner=owner, project=project)
    in_group = Amounts(cpu=2, memory=3 * GIB, fgpu=500, sessions=1)
    both = Amounts(cpu=3, memory=4 * GIB, fgpu=500, sessions=2)
    assert (held.usage_of(owner), held.usage_of(owner, group), held.usage_of(project)) == (both, in_group, in_group)
    assert held.usage_of(make_user()) == Amounts(cpu=0, memory=0, fgpu=0, sessions=0)
    assert held.held_by([owner.pk, make_user().pk]) == {owner.pk: both}
    assert held.held_for([project.pk]) == {project.pk: in_group}
    assert (held.pending_of(owner), held.pending_of(project), held.pending_of(make_project(owner))) == (1, 1, 0)
