"""The resource bars and GPU blocks of one user in one group. Pure but for the two queries at the end."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from django.db.models import Count, QuerySet, Sum
from django.db.models.expressions import RawSQL
from django.utils.translation import gettext as _

from accounts.limits import FIELDS, Amounts, PolicyLimits, lesser, remaining
from pages.gauges import Gauge
from pages.session_list.compiled import of_numbers
from pages.session_list.occupancy import GpuOccupancy, GroupOccupancy
from resources.amounts.units import fgpu_text
from sessions.lifecycle import HOSTED
from sessions.models import GpuShare, Session

MAX_BLOCKS: Final = 48  # GPUs shown one by one; of larger groups only those on which the user holds a share

HeldByGroup = Mapping[int, Amounts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Usage of one resource: of the policy's limit, and the two parts of what can still be had in the chosen group."""

    mine: Gauge  # held by all sessions of the user, of what the policy allows: the limit stays
    here: Gauge  # held in the group, of that and what can still be had in it
    everywhere: Gauge  # held by all sessions, of that and what can still be had in the group


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuBlock:
    """One GPU: what the user holds of it, what others hold, and what is free, in milli-fGPU."""

    device: GpuOccupancy
    capacity_milli: int
    mine_milli: int

    @property
    def others_milli(self) -> int:
        """Held by other users."""
        return max(0, self.device.held_milli - self.mine_milli)

    @property
    def free_milli(self) -> int:
        """Held by nobody, on a host that takes sessions."""
        return max(0, self.capacity_milli - self.device.held_milli) if self.device.is_open else 0

    @property
    def mine_percent(self) -> str:
        """The user's part of it."""
        return _percent(self.mine_milli, self.capacity_milli)

    @property
    def others_percent(self) -> str:
        """The others' part of it."""
        return _percent(self.others_milli, self.capacity_milli)

    @property
    def text(self) -> str:
        """The state in a few words."""
        if not self.device.is_open:
            return _("not available")
        if not self.free_milli:
            return _("in use")
        return _("%(free)s free") % {"free": fgpu_text(self.free_milli)}

    @property
    def description(self) -> str:
        """All that the drawing shows, in a sentence."""
        return _(
            "GPU %(index)s of host %(host)s, %(name)s: you hold %(mine)s fGPU, others hold %(others)s, %(free)s free"
        ) % {
            "index": self.device.number,
            "host": self.device.host,
            "name": self.device.name,
            "mine": fgpu_text(self.mine_milli),
            "others": fgpu_text(self.others_milli),
            "free": fgpu_text(self.free_milli),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMap:
    """The GPUs of a group: `blocks` are all of them, or in a large group those on which the user holds a share."""

    blocks: tuple[GpuBlock, ...]
    count: int
    mine_milli: int
    others_milli: int
    free_milli: int
    free_count: int  # GPUs of which nothing is held
    partly_free_count: int
    is_whole: bool

    @property
    def is_simulated(self) -> bool:
        """True if all of the shown GPUs are simulated, so that it need not be said at each."""
        return bool(self.blocks) and all(block.device.is_simulated for block in self.blocks)

    @property
    def mine_text(self) -> str:
        """What the user holds, in words; "" for nothing."""
        return _("%(mine)s mine") % {"mine": fgpu_text(self.mine_milli)} if self.mine_milli else ""

    @property
    def all_milli(self) -> int:
        """What all GPUs that take sessions have, and what is held on others."""
        return max(1, self.mine_milli + self.others_milli + self.free_milli)

    @property
    def mine_percent(self) -> str:
        """The user's part of the group."""
        return _percent(self.mine_milli, self.all_milli)

    @property
    def others_percent(self) -> str:
        """The others' part of the group."""
        return _percent(self.others_milli, self.all_milli)


def _percent(part: int, whole: int) -> str:
    """Return a part in percent, as an SVG attribute in any language."""
    return f"{100 * part / whole:.2f}"


def bars_of(limits: PolicyLimits, held: HeldByGroup, group_id: int, free: Amounts) -> list[Bar]:
    """Return the bars of a user who holds `held`, in a group with `free` amounts.

    What can still be had is left in the policy and free in the group, whichever is less.
    """
    mine, here = sum(held.values(), Amounts()), held.get(group_id, Amounts())
    left = remaining(limits, mine)
    bars = []
    for name in FIELDS:
        more = lesser(getattr(left, name), None if name == "sessions" else getattr(free, name))
        used = {"mine": getattr(mine, name), "here": getattr(here, name), "everywhere": getattr(mine, name)}
        most = {part: None if more is None else held + more for part, held in used.items()}
        most["mine"] = getattr(limits, name)
        bars.append(Bar(**{part: Gauge(name=name, used=used[part], most=most[part]) for part in used}))
    return bars


def gpu_map(occupancy: GroupOccupancy, mine: Mapping[int, int]) -> GpuMap:
    """Return the GPUs of a group for a user who holds `mine`: milli-fGPU by GPU."""
    devices = occupancy.devices
    is_whole = len(devices) <= MAX_BLOCKS
    chosen = devices.values() if is_whole else sorted((devices[pk] for pk in mine if pk in devices), key=_place)
    capacity = occupancy.capacity_milli
    mine_milli = sum(mine.values())
    return GpuMap(
        blocks=tuple(
            GpuBlock(device=device, capacity_milli=capacity, mine_milli=mine.get(device.id, 0))
            for device in islice(chosen, MAX_BLOCKS)
        ),
        count=len(devices),
        mine_milli=mine_milli,
        others_milli=max(0, occupancy.held_milli - mine_milli),
        free_milli=occupancy.free.fgpu,
        free_count=occupancy.free_count,
        partly_free_count=occupancy.partly_free_count,
        is_whole=is_whole,
    )


def _place(device: GpuOccupancy) -> tuple[str, int]:
    return device.host, device.number


def held_by(user_ids: Sequence[int]) -> dict[int, dict[int, Amounts]]:
    """Return what the sessions of these users hold, by user and group; one query."""
    found: defaultdict[int, dict[int, Amounts]] = defaultdict(dict)
    for owner_id, group_id, *held in of_numbers(_held, user_ids):
        found[owner_id][group_id] = Amounts(**dict(zip(FIELDS, map(int, held), strict=True)))
    return found


def gpu_shares_of(user_ids: Sequence[int], group_id: int) -> dict[int, dict[int, int]]:
    """Return the milli-fGPU that these users hold of each GPU of the group, by user and GPU; one query."""
    found: defaultdict[int, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for owner_id, gpu_id, of_group, milli in of_numbers(_gpu_shares, user_ids):
        if of_group == group_id:
            found[owner_id][gpu_id] += milli
    return {owner_id: dict(held) for owner_id, held in found.items()}


def _held(user_ids: RawSQL) -> QuerySet[Any, Any]:
    sessions = Session.objects.filter(owner__in=user_ids, status__in=HOSTED).order_by()
    amounts = Sum("cpu"), Sum("memory"), Sum("fgpu"), Count("id")
    # Amounts in values_list() itself would be grouped by session.
    return sessions.values_list("owner_id", "resource_group_id").annotate(*amounts)


def _gpu_shares(user_ids: RawSQL) -> QuerySet[Any, Any]:
    shares = GpuShare.objects.filter(lease__session__owner__in=user_ids).order_by()
    return shares.values_list("lease__session__owner_id", "gpu_id", "gpu__host__group_id", "milli")
