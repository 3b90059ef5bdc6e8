"""Tests of projects: who sees, uses and manages them, and which of two policies counts."""

from datetime import timedelta

import pytest

from accounts.models import Project
from accounts.policies import bounds_of, policies_of
from tests.factories import make_policy, make_project, make_user

pytestmark = pytest.mark.django_db


def test_members_use_projects_and_managers_manage_them() -> None:
    member, manager, stranger = make_user(), make_user(), make_user()
    project = make_project(member, managers=[manager])
    assert list(Project.objects.usable_by(member)) == list(Project.objects.visible_to(member)) == [project]
    assert not Project.objects.managed_by(member)
    assert list(Project.objects.managed_by(manager)) == [project]
    assert not Project.objects.visible_to(stranger)
    Project.objects.update(is_active=False)
    assert not Project.objects.usable_by(member)
    assert project in Project.objects.visible_to(member)


def test_inactive_projects_may_hold_nothing() -> None:
    project = make_project(policy=make_policy(fgpu=2000))
    assert project.limits().sessions is None
    project.is_active = False
    assert project.limits().sessions == 0
    assert project.limits().fgpu == 2000


def test_strictest_of_two_policies_counts() -> None:
    user = make_user(policy=make_policy(max_lifetime=timedelta(days=2), allow_sudo=True, max_extension=timedelta(1)))
    launches = {"max_per_launch": 3, "max_cluster_size": 8, "max_array_tasks": 9}
    policy = make_policy(max_lifetime=timedelta(days=1), preemptible_only=True, **launches)
    project = make_project(user, policy=policy)
    assert policies_of(user, project) == (user.policy, policy)
    bounds = bounds_of(user, project)
    assert bounds.max_lifetime == timedelta(days=1)
    assert {name: getattr(bounds, name) for name in launches} == launches
    assert bounds.max_priority == 10
    assert bounds.max_extension == timedelta(0)
    assert bounds.preemptible_only
    assert not bounds.allow_sudo
    assert bounds_of(user, None).allow_sudo
    assert bounds_of(user, make_project(user)) == bounds_of(user, None)
