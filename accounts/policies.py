"""What the policies that bind a session allow together: its owner's and, where it is of a project, the project's.

The strictest counts: the least of two limits, and what is permitted is what both permit.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar

from accounts.models import Project, ResourcePolicy, User

DEFAULT_PRIORITY: Final = 10
MAX_PRIORITY: Final = 100
Limit = TypeVar("Limit", int, timedelta)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBounds:
    """Bounds of one session or launch; `None` is unlimited. Amounts held together are limited apart, by each policy."""

    max_per_launch: int | None
    max_cluster_size: int
    max_array_tasks: int | None
    max_priority: int
    max_lifetime: timedelta | None
    max_extension: timedelta
    disk_bytes: int | None
    disk_files: int | None
    preemptible_only: bool
    allow_sudo: bool
    allow_public_apps: bool


def policies_of(owner: User, project: Project | None) -> tuple[ResourcePolicy, ...]:
    """Return the policies that bind a session, the owner's first."""
    return (owner.policy, project.policy) if project and project.policy else (owner.policy,)


def bounds_of(owner: User, project: Project | None) -> PolicyBounds:
    """Return the strictest bounds of the policies that bind a session."""
    policies = policies_of(owner, project)
    return PolicyBounds(
        max_per_launch=least(policies, lambda policy: policy.max_per_launch),
        max_cluster_size=min(policy.max_cluster_size for policy in policies),
        max_array_tasks=least(policies, lambda policy: policy.max_array_tasks),
        max_priority=max_priority(owner, project),
        max_lifetime=least(policies, lambda policy: policy.max_lifetime),
        max_extension=min(policy.max_extension for policy in policies),
        disk_bytes=least(policies, lambda policy: policy.disk_bytes),
        disk_files=least(policies, lambda policy: policy.disk_files),
        preemptible_only=any(policy.preemptible_only for policy in policies),
        allow_sudo=all(policy.allow_sudo for policy in policies),
        allow_public_apps=all(policy.allow_public_apps for policy in policies),
    )


def max_priority(owner: User, project: Project | None) -> int:
    """Return the highest priority of a session: by default that of sessions that ask for none; superadmins have any."""
    if owner.is_superuser:
        return MAX_PRIORITY
    own = owner.policy.max_priority
    by_project = project.policy.max_priority if project and project.policy else None
    return min(DEFAULT_PRIORITY if own is None else own, MAX_PRIORITY if by_project is None else by_project)


def least(policies: Iterable[ResourcePolicy], limit_of: Callable[[ResourcePolicy], Limit | None]) -> Limit | None:
    """Return the least of the policies' limits; None where all are unlimited."""
    return min((limit for policy in policies if (limit := limit_of(policy)) is not None), default=None)
