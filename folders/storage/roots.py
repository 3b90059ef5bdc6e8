"""Which host has which storage root: what host workers find, and what this process finds on its own machine."""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from django.db.models import F, FilteredRelation, Q

from folders.files.kernel_quota import KernelQuota
from folders.files.roots import RootProbe, RootState, write_marker
from folders.models import HostRoot, QuotaSupport, StorageRoot
from resources import clock
from resources.amounts.units import listing
from resources.hosts.frequent import insert_rows
from resources.kick import kick_scheduler
from resources.models import Host, HostStatus

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 10  # between two checks of a host's roots
CHECK_TIMEOUT_SECONDS: Final = 5.0  # after which a root that does not answer counts as missing
HERE_TIMEOUT_SECONDS: Final = 2.0  # the same while a user waits
HERE_AGE_SECONDS: Final = 5.0  # for which an answer about this machine is taken for true

_probes: dict[tuple[str, str], RootProbe] = {}
_probes_lock = threading.Lock()


def check(
    host: Host,
    can_limit: Callable[[], bool] = lambda: True,
    problem_of: Callable[[StorageRoot, RootState], str] = lambda root, state: state.problem,
) -> list[StorageRoot]:
    """Store which roots this machine, which is `host`, has, and return all that there are.

    Takes at most CHECK_TIMEOUT_SECONDS, and two queries; one where there are no roots.

    `can_limit` is asked whether this process may set quotas, where a file system enforces them. `problem_of` says
    why sessions of the host cannot mount folders of a root as it was found; the host then counts as lacking it.
    """
    here = FilteredRelation("on_hosts", condition=Q(on_hosts__host=host))
    known = StorageRoot.objects.annotate(here=here, was_present=F("here__is_present"))
    before = {root.pk: root.was_present for root in known}
    roots: list[StorageRoot] = [*known]
    if not roots:
        return roots
    for root in roots:
        _probe(root).begin()
    found = {root: _probe(root).state(CHECK_TIMEOUT_SECONDS, CHECK_TIMEOUT_SECONDS) for root in roots}
    found = {root: replace(state, problem=problem_of(root, state)) for root, state in found.items()}
    now = clock.now()
    rows = [
        HostRoot(
            host=host,
            root=root,
            is_present=not state.problem,
            problem=state.problem[:300],
            quota_support=_quota_support(state, can_limit).value,
            total_bytes=state.total_bytes,
            free_bytes=state.free_bytes,
            checked_at=now,
        )
        for root, state in found.items()
    ]
    fields = ["is_present", "problem", "quota_support", "total_bytes", "free_bytes", "checked_at"]
    insert_rows(rows, ["host", "root"], fields)
    if any(bool(before[row.root_id]) != row.is_present for row in rows):
        kick_scheduler()
    for root, state in found.items():
        _log(host, root, state, was_present=before[root.pk])
    return roots


def problem_here(root: StorageRoot) -> str:
    """Return why this machine cannot use the root, as a sentence; "" where it can. Takes at most two seconds."""
    return state_here(root).problem


def state_here(root: StorageRoot) -> RootState:
    """Return how this machine finds the root. Takes at most two seconds."""
    return _probe(root).state(HERE_TIMEOUT_SECONDS, HERE_AGE_SECONDS)


def hosts_with(roots: Iterable[StorageRoot]) -> dict[int, list[str]]:
    """Return the names of the hosts that have each root, by the root's primary key; one query."""
    roots = list(roots)
    names: dict[int, list[str]] = {root.pk: [] for root in roots}
    present = HostRoot.objects.filter(root__in=roots, is_present=True).exclude(host__status=HostStatus.LOST)
    for root_id, name in present.order_by("host__name").values_list("root_id", "host__name"):
        names[root_id].append(name)
    return names


def where_text(root: StorageRoot) -> str:
    """Return on which hosts folders of a root can be used that this machine lacks; "" where it has the root."""
    problem = problem_here(root)
    if not problem:
        return ""
    names = hosts_with([root])[root.pk]
    if not names:
        return f"No host has the storage root {root.name} at present. Here: {problem}"
    return f"Sessions on {listing(names)} can use folders of the storage root {root.name}. Here: {problem}"


def sessions_problem(root: StorageRoot) -> str:
    """Return why sessions can use the root on no host at present, as a sentence; "" where one can. One query."""
    rows = HostRoot.objects.filter(root=root).exclude(host__status=HostStatus.LOST).order_by("host__name")
    found = list(rows.values_list("is_present", "problem"))
    if not found or any(is_present for is_present, _ in found):
        return ""
    return f"Sessions cannot use the storage {root.name} at present: {found[0][1]}"


def warnings() -> list[str]:
    """Return a sentence for every root that a host should have and lacks; two queries.

    A shared root should be on every host that is not lost, any other on one of them.
    """
    found: dict[int, list[HostRoot]] = {}
    for row in HostRoot.objects.exclude(host__status=HostStatus.LOST).select_related("host").order_by("host__name"):
        found.setdefault(row.root_id, []).append(row)
    texts = []
    for root in StorageRoot.objects.all():
        rows = found.get(root.pk, [])
        missing = [row for row in rows if not row.is_present]
        if missing and len(missing) == len(rows):
            texts.append(f"Storage root {root.name} is on no host: {missing[0].problem}")
        elif missing and root.is_shared:
            names = listing([row.host.name for row in missing])
            texts.append(f"Storage root {root.name} is missing on {names}: {missing[0].problem}")
    return texts


def mark(root: StorageRoot) -> None:
    """Write the root's marker file into its directory on this machine, which must be empty.

    Raises files.roots.NotEmptyError, or OSError where the directory is not there or cannot be written to.
    """
    write_marker(Path(root.path), str(root.key))


def _probe(root: StorageRoot) -> RootProbe:
    with _probes_lock:
        return _probes.setdefault((root.path, str(root.key)), RootProbe(Path(root.path), str(root.key)))


def _quota_support(state: RootState, can_limit: Callable[[], bool]) -> QuotaSupport:
    is_enforced = state.quota != KernelQuota.NONE and can_limit()
    return QuotaSupport.ENFORCED if is_enforced else QuotaSupport.WATCHED


def _log(host: Host, root: StorageRoot, state: RootState, *, was_present: bool | None) -> None:
    is_present = not state.problem
    if is_present == was_present or (was_present is None and not is_present and not root.is_shared):
        return
    if is_present:
        logger.info("host %s: has the storage root %s", host.name, root.name)
    else:
        logger.warning("host %s: lacks the storage root %s: %s", host.name, root.name, state.problem)
