"""What the policies that bind a launch refuse: those of its owner and of its project. Each message says whose it is."""

from collections.abc import Iterator
from datetime import timedelta

from accounts import limits
from accounts.limits import Amounts, PolicyLimits
from accounts.models import Project, ResourcePolicy, User
from accounts.policies import DEFAULT_PRIORITY, max_priority
from resources.amounts.units import amount_text, span_text
from resources.models import ResourceGroup
from sessions.errors import GENERAL, RejectedError
from sessions.limits import held as usage


def project_error(owner: User, project: Project | None) -> str | None:
    """Return why the owner may not start sessions for the project, or None."""
    if project is None or Project.objects.usable_by(owner).filter(pk=project.pk).exists():
        return None
    return f"You are not a member of the project {project}, or it is not active any more."


def group_errors(owner: User, group: ResourceGroup, project: Project | None, *, is_batch: bool) -> dict[str, str]:
    """Return {field: message} for what the group does not admit: this owner with this project, or this kind."""
    if not ResourceGroup.objects.usable_for(owner, project).filter(pk=group.pk).exists():
        granted = Project.objects.usable_by(owner).filter(resource_groups=group, resource_groups__is_active=True)
        names = ", ".join(granted.values_list("name", flat=True))
        refusal = f"{group} is granted to your project {names}: start the session for it." if names else None
        return {"resource_group": refusal or "You may not use this resource group."}
    if is_batch and not group.allow_batch:
        return {"command": f"The resource group {group} takes no sessions that run a command."}
    if not is_batch and not group.allow_interactive:
        return {"command": f"The resource group {group} takes only sessions that run a command and end with it."}
    return {}


def limit_errors(
    owner: User,
    project: Project | None,
    asked: Amounts,
    *,
    count: int,
    grows_to: int,
    priority: int | None = None,
    time_limit: timedelta | None = None,
) -> dict[str, str]:
    """Return {field: message} for what a policy never allows, whatever else runs.

    `asked` is of one session, with all the members with which it starts; it `grows_to` so many.
    """
    errors: dict[str, str] = {}
    if priority is not None and priority > (most := max_priority(owner, project)):
        errors["priority"] = f"Your policies allow a priority of at most {most}."
    for whose, policy in _policies(owner, project):
        for name, message in _policy_errors(whose, policy, asked, count, grows_to, time_limit):
            errors.setdefault(name, message)
    return errors


def priority_of(owner: User, project: Project | None, asked: int | None) -> int:
    """Return the priority of a session: as asked for, else the default as far as the policies allow it."""
    return min(DEFAULT_PRIORITY, max_priority(owner, project)) if asked is None else asked


def array_error(owner: User, project: Project | None, tasks: int) -> str | None:
    """Return why an array may not have so many tasks, or None."""
    for whose, policy in _policies(owner, project):
        if policy.max_array_tasks is not None and tasks > policy.max_array_tasks:
            return f"{whose} allows at most {policy.max_array_tasks} tasks in an array; this makes {tasks}."
    return None


def check_pending(owner: User, project: Project | None, count: int) -> None:
    """Raise RejectedError where so many more waiting sessions exceed the owner's or the project's limit.

    Exact where the rows of both are locked.
    """
    for whose, holder, policy_limits in holders(owner, project):
        most = policy_limits.pending
        if most is not None and (waiting := usage.pending_of(holder)) + count > most:
            allowed = f"{whose} allows {most} waiting sessions, and {waiting} wait already"
            raise RejectedError({"count": f"{allowed}: {count} more are too many."})


def _policies(owner: User, project: Project | None) -> Iterator[tuple[str, ResourcePolicy]]:
    yield "Your policy", owner.policy
    if project is not None and project.policy is not None:
        yield f"The project {project}", project.policy


def holders(owner: User, project: Project | None) -> Iterator[tuple[str, User | Project, PolicyLimits]]:
    yield "Your policy", owner, owner.policy.limits()
    if project is not None:
        yield f"The project {project}", project, project.limits()


def _policy_errors(
    whose: str,
    policy: ResourcePolicy,
    asked: Amounts,
    count: int,
    grows_to: int,
    time_limit: timedelta | None,
) -> Iterator[tuple[str, str]]:
    most = policy.limits()
    too_many_members = f"{whose} allows at most {most.sessions} sessions at once; each member is one."
    for name in limits.exceeded(most, asked):
        if name == "sessions" and asked.sessions > 1 and most.sessions:
            yield "cluster_size", too_many_members
        elif name == "sessions":
            yield GENERAL, f"{whose} allows no sessions."
        elif asked.sessions > 1:
            together = f"all {asked.sessions} members have {amount_text(name, getattr(asked, name))}"
            yield name, f"{whose} allows at most {amount_text(name, getattr(most, name))}; {together}."
        else:
            yield name, f"{whose} allows at most {amount_text(name, getattr(most, name))}."
    if most.sessions and asked.sessions <= most.sessions < grows_to:  # a row for each of these would wait for ever
        yield "cluster_max_size", too_many_members
    if policy.max_per_launch is not None and count > policy.max_per_launch:
        yield "count", f"{whose} allows at most {policy.max_per_launch} sessions per launch."
    if policy.max_lifetime is not None and time_limit is not None and time_limit > policy.max_lifetime:
        yield "time_limit", f"{whose} ends sessions after {span_text(policy.max_lifetime)}."
