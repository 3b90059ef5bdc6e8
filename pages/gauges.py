"""What is used of a limit, in words and as a bar: the one meaning of "x of y" on all pages."""

from dataclasses import dataclass
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from resources.amounts.units import fgpu_text, size_text

LABELS: Final[dict[str, Promise]] = {
    "cpu": gettext_lazy("CPU"),
    "memory": gettext_lazy("RAM"),
    "fgpu": gettext_lazy("GPU"),
    "sessions": gettext_lazy("Sessions"),
    "pending": gettext_lazy("Waiting sessions"),
}
ICONS: Final = {"cpu": "cpu", "memory": "memory", "fgpu": "gpu", "sessions": "layers", "pending": "clock"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """What is used of an amount of cores, bytes, milli-fGPU or sessions, and the most that there is; None: no limit."""

    name: str
    used: int
    most: int | None

    @property
    def label(self) -> Promise:
        """What it is, in words."""
        return LABELS[self.name]

    @property
    def icon(self) -> str:
        """Its icon in static/img/icons.svg."""
        return ICONS[self.name]

    @property
    def is_full(self) -> bool:
        """True if the limit is reached."""
        return self.most is not None and self.used >= self.most

    @property
    def text(self) -> str:
        """Used of the limit, in words."""
        if self.most is None:
            return _("%(used)s, no limit") % {"used": amount_text(self.name, self.used)}
        if not (self.used or self.most):
            return _("none available now")
        most = amount_text(self.name, self.most) if self.name in ("cpu", "memory", "fgpu") else self.most
        return _("%(used)s of %(most)s") % {"used": self._number, "most": most}

    @property
    def _number(self) -> str:
        """What is used, before a limit with the same unit."""
        if self.name == "memory":
            return size_text(self.used) if self.used else "0"
        return fgpu_text(self.used) if self.name == "fgpu" else str(self.used)


def amount_text(name: str, amount: int) -> str:
    """Return an amount of one of LABELS with its unit."""
    if name == "memory":
        return size_text(amount)
    if name == "fgpu":
        return _("%(amount)s fGPU") % {"amount": fgpu_text(amount)}
    if name == "cpu":
        return ngettext("%(count)s core", "%(count)s cores", amount) % {"count": amount}
    return ngettext("%(count)s session", "%(count)s sessions", amount) % {"count": amount}
