"""The limits that bind a user, each with what is used of it and where it comes from: a policy, a project, or a user."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db.models import Field
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from accounts.models import Project, ResourcePolicy, User
from accounts.policies import MAX_PRIORITY
from resources.amounts.units import fgpu_text, size_text, span_text
from sessions.limits.policy_use import use_by
from translation.english import from_english

OF_USERS_ALONE: Final = frozenset({"max_private_images", "allow_conversion", "allow_unlisted_images"})
FIELDS: Final = [each for each in ResourcePolicy._meta.concrete_fields if each.name not in ("id", "name")]


@dataclass(frozen=True, slots=True)
class LimitSource:
    """Whose limits a column of the table shows: the user's own, or those of a project."""

    holder: User | Project
    policy: ResourcePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitCell:
    """A limit as one source has it."""

    text: str
    note: str = ""  # where it comes from, if not from the source's policy
    is_reached: bool = False


@dataclass(frozen=True, slots=True)
class LimitRow:
    """A limit as each of the sources has it."""

    name: str  # of the policy's field
    label: str
    cells: list[tuple[LimitSource, LimitCell]]


def sources_of(user: User) -> list[LimitSource]:
    """Return the user's own policy, and those of active projects that have one; one query and the policy."""
    projects = Project.objects.usable_by(user).exclude(policy=None).select_related("policy").order_by("name")
    return [LimitSource(user, user.policy), *(LimitSource(each, each.policy) for each in projects if each.policy)]


def limits_of(sources: list[LimitSource]) -> list[LimitRow]:
    """Return the limits of the sources, the first of which is the user's own; six queries."""
    own, *projects = sources
    of_user = use_by("owner", owner=own.holder)
    of_projects = use_by("project", project__in=[each.holder.pk for each in projects])
    used = [of_user, *[of_projects] * len(projects)]
    rows = []
    for field in FIELDS:
        cells = [(each, _cell(field, each, use.get(field.name))) for each, use in zip(sources, used, strict=True)]
        rows.append(LimitRow(field.name, _label(field), cells))
    return rows


def _label(field: "Field[Any, Any]") -> str:
    """Return the field's name without its unit, which the amounts have."""
    return "fGPU" if field.name == "fgpu" else capfirst(str(field.verbose_name).replace("(bytes)", "").strip())


def _cell(field: "Field[Any, Any]", source: LimitSource, used: Mapping[int, int] | None) -> LimitCell:
    value, note = _in_force(field.name, source)
    if used is None or value is False or (field.name in OF_USERS_ALONE and isinstance(source.holder, Project)):
        return LimitCell(text=_shown(field, value), note=note)
    amount = used.get(source.holder.pk, 0)
    facts = {"used": _shown(field, amount), "limit": _shown(field, value)}
    if value is None:
        return LimitCell(text=_("%(used)s, no limit") % facts)
    return LimitCell(text=_("%(used)s of %(limit)s") % facts, is_reached=amount >= value)


def _in_force(name: str, source: LimitSource) -> tuple[Any, str]:
    """Return what counts, and where that comes from if not from the policy."""
    holder, value = source.holder, getattr(source.policy, name)
    if isinstance(holder, Project):
        if name in OF_USERS_ALONE:
            return "-", ""
        return (holder.share_weight, _("set for the project")) if name == "share_weight" else (value, "")
    if name == "share_weight" and holder.share_weight is not None:
        return holder.share_weight, _("set for this user")
    if holder.is_superuser and name in ("max_priority", "allow_conversion"):
        return (MAX_PRIORITY if name == "max_priority" else True), _("as a superadmin")
    return value, ""


def _shown(field: "Field[Any, Any]", value: Any) -> str:
    if value is None:
        return _("no limit")
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, timedelta):
        return from_english(span_text(value))
    if field.name == "fgpu":
        return fgpu_text(value)
    if field.name in ("memory", "disk_bytes", "storage_bytes"):
        return size_text(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
