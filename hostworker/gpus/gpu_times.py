"""What part of each device's time each session took, over a window of several looks at the driver's record. Pure."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from statistics import fmean

from hostworker.gpus.violations import SessionDevice


class GpuTimes:
    """Gathers the looks of one window."""

    def __init__(self) -> None:
        self._looks: dict[SessionDevice, list[int]] = defaultdict(list)

    def note(
        self, uuid: str, sessions: Collection[str], by_process: Mapping[int, int], owners: Mapping[int, str]
    ) -> None:
        """Note one look: of the device's `sessions`, {pid: percent}, and {pid: session} of the processes."""
        for session in sessions:
            percents = [percent for pid, percent in by_process.items() if owners.get(pid) == session]
            self._looks[session, uuid].append(min(100, sum(percents)))

    def take(self) -> dict[SessionDevice, float]:
        """Return the mean of each session and device, in percent, and begin a new window."""
        means = {place: fmean(looks) for place, looks in self._looks.items()}
        self._looks.clear()
        return means
