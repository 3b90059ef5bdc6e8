"""The members of clusters, for what is done with all of them alike."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from sessions.models.cluster import Cluster
from sessions.models.session import Session

_SIZE: Final = ("cpu", "memory", "fgpu", "gpu_memory", "min_gpu_memory", "min_fgpu")


def size_of(member: Session) -> dict[str, Any]:
    """Return the fields that a resize changes, by GPU memory too, for another member of its size."""
    return {name: getattr(member, name) for name in _SIZE}


def locked_members(session_id: str, *related: str) -> list[Session]:
    """Return the session, or all members of its cluster by rank, under the locks of their rows.

    The cluster is locked first, as whoever settles it does: so nobody waits for another in a circle. Call it in a
    transaction.
    """
    cluster_id = Session.objects.values_list("cluster", flat=True).get(pk=session_id)
    if cluster_id is not None:
        Cluster.objects.select_for_update(no_key=True).get(pk=cluster_id)
    rows = Session(pk=session_id, cluster_id=cluster_id).members.select_related(*related)
    return list(rows.select_for_update(of=("self",), no_key=True))


def alike(members: Iterable[Session]) -> list[list[Session]]:
    """Divide members of a cluster, or a session alone, into those launched with one size. Fetch `cluster` with them."""
    found: dict[bool, list[Session]] = {}
    for member in members:
        is_apart = member.cluster is not None and member.cluster.main_differs and member.rank == 0
        found.setdefault(is_apart, []).append(member)
    return [*found.values()]


def first_refusal(members: Iterable[Session], refusal: Callable[[Session], str]) -> str:
    """Return why the first of them that is refused is, of a cluster's member with its name; "" where none is."""
    for member in members:
        if text := refusal(member):
            return text if member.cluster_id is None else f"{member.member_name}: {text}"
    return ""
