"""Administration of resource policies, with what each limit means for those who are under it today."""

from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext

from accounts.models import ResourcePolicy
from resources.admin import ResourcePolicyAdmin
from resources.amounts.admin_columns import sentences
from resources.amounts.units import fgpu_text, size_text
from sessions.limits.policy_use import use_by

SHOWN = {"memory": size_text, "storage_bytes": size_text, "fgpu": fgpu_text}


class PolicyWithUseAdmin(ResourcePolicyAdmin):
    """Resource policies, whose form says how many are bound by them, and how many have reached each limit."""

    def get_fieldsets(self, request: HttpRequest, obj: ResourcePolicy | None = None) -> Any:
        """Return the groups of fields, the first of which says whom the policy binds."""
        (_, first), *others = super().get_fieldsets(request, obj)
        return [(None, first | {"description": bound_by(obj) if obj else ""}), *others]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Return the form, whose limits are followed by what they mean today."""
        form = super().get_form(request, obj, change, **kwargs)
        for name, text in (today(obj) if obj else {}).items():
            form.base_fields[name].help_text = sentences(form.base_fields[name].help_text, text)
        return form


def bound_by(policy: ResourcePolicy) -> str:
    """Return how many users and projects the policy binds; two queries."""
    users, projects = policy.users.filter(is_active=True), policy.projects.filter(is_active=True)
    counts = {"users": users.count(), "projects": projects.count()}
    return gettext("Users bound by it: %(users)d. Projects: %(projects)d.") % counts


def today(policy: ResourcePolicy) -> dict[str, str]:
    """Return what each limit means now, by its field: the most that one has, and how many are at or above it."""
    of_users, of_projects = use_by("owner", owner__policy=policy), use_by("project", project__policy=policy)
    return {
        name: _today(policy, name, [*each.values(), *of_projects.get(name, {}).values()])
        for name, each in of_users.items()
    }


def _today(policy: ResourcePolicy, name: str, amounts: list[int]) -> str:
    limit: int | None = getattr(policy, name)
    facts = {"most": SHOWN.get(name, str)(max(amounts, default=0))}
    if limit is None:
        return gettext("Today the most that anyone has is %(most)s") % facts
    facts |= {"full": str(sum(each == limit for each in amounts)), "over": str(sum(each > limit for each in amounts))}
    return gettext("Today the most that anyone has is %(most)s; at the limit: %(full)s; above it: %(over)s") % facts
