"""How much a user or project holds of each amount that the policy limits."""

from dataclasses import asdict, dataclass
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from sessions.limits.held import Holder, limit_use_of

LABELS: Final[dict[str, Promise]] = {
    "cpu": _("CPU cores"),
    "memory": _("Memory"),
    "fgpu": _("fGPU"),
    "sessions": _("Sessions that hold resources"),
    "pending": _("Sessions that wait"),
}
ICONS: Final = {"cpu": "cpu", "memory": "memory", "fgpu": "gpu", "sessions": "layers", "pending": "clock"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a user or project holds of an amount, and the policy's limit; None is unlimited."""

    name: str
    used: int
    limit: int | None

    @property
    def label(self) -> Promise:
        """What it is, in words."""
        return LABELS[self.name]

    @property
    def icon(self) -> str:
        """Its icon in static/img/icons.svg."""
        return ICONS[self.name]

    @property
    def left(self) -> int | None:
        """What may still be had; None without a limit."""
        return None if self.limit is None else max(0, self.limit - self.used)

    @property
    def is_full(self) -> bool:
        """True if the limit is reached."""
        return self.limit is not None and self.used >= self.limit


def allowances_of(holder: Holder) -> list[Allowance]:
    """Return the amounts that the policy of a user or project limits; two queries and the policy."""
    use = limit_use_of(holder)
    held = {**asdict(use.used), "pending": use.pending}
    return [Allowance(name=name, used=held[name], limit=getattr(use.limits, name)) for name in LABELS]
