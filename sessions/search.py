"""Search and order of sessions, for the pages' list and the API's."""

from typing import Final

from django.db.models import Q

from accounts.models import User
from sessions.models import Session

SORTS: Final = {
    "created": ("created_at", "id"),
    "name": ("name", "id"),
    "status": ("status", "id"),
    "environment": ("image__environment", "image__version", "id"),
    "owner": ("owner__email", "id"),
    "group": ("resource_group__name", "host__name", "id"),
    "cpu": ("cpu", "id"),
    "memory": ("memory", "id"),
    "fgpu": ("fgpu", "id"),
    "ended": ("ended_at", "id"),
}
DEFAULT_SORT: Final = "-created"


def order_of(sort: str) -> tuple[str, ...]:
    """Return the fields to order by; `sort` is a key of SORTS, with a minus for the reverse."""
    sign = "-" if sort.startswith("-") else ""
    return tuple(f"{sign}{name}" for name in SORTS[sort.removeprefix("-")])


def match(text: str, user: User) -> Q:
    """Return the condition that name, id, that of a member, or image have the text; for superadmins, owner and host."""
    found = Q(name__icontains=text) | Q(pk__startswith=text.lower())
    found |= Q(cluster__in=Session.objects.filter(pk__startswith=text.lower(), rank__gt=0).values("cluster"))
    found |= Q(image__reference__icontains=text) | Q(image__environment__icontains=text)
    found |= Q(image__version__icontains=text)
    if user.is_superuser:
        found |= Q(owner__email__icontains=text) | Q(host__name__icontains=text)
    return found
