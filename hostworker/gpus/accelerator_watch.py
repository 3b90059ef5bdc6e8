"""Looks again for accelerators that NVML does not know: what is not in order is lent to nobody until it is again."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from typing import Final

from django.db import transaction

from hostworker.gpus.sysfs_sampler import SysfsSampler
from resources.accelerators.discovery import Found
from resources.accelerators.kinds import kind_name
from resources.gpus.discovery import whole_devices
from resources.hosts import services as hosts
from resources.models import Gpu, Host
from sessions import notes
from sessions.lifecycle import Reason
from sessions.models import Session

logger = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS: Final = 30
FIND_SECONDS: Final = 10.0  # for one search; a driver or a plug-in that hangs holds up nothing else
MAX_LOOKS: Final = 120  # in order in a row, before a device that comes and goes is lent again: an hour
NOT_FOUND: Final = "it is not found any more"
UNSTEADY: Final = "it was not in order several times, and is watched for up to an hour before it is lent again"


class AcceleratorWatch:
    """Watches one host's accelerators; `may_lend` says by its id whether the settings let the host lend a device."""

    def __init__(
        self,
        host: Host,
        find: Callable[[], Found | None],
        may_lend: Callable[[str], bool],
        sampler: SysfsSampler,
    ) -> None:
        """Begin with what the host has registered; `find` returns None where that cannot be told now."""
        self._host = host
        self._find = find
        self._may_lend = may_lend
        self._sampler = sampler
        self._missing: Collection[str] = frozenset()
        self._search: Future[Found | None] | None = None
        self._losses: Counter[str] = Counter()  # how often this worker has withdrawn each
        self._looks: Counter[str] = Counter()  # that each withdrawn one was in order in a row

    def poll(self) -> None:
        """Withdraw devices that were not in order twice in a row, lend those that are, and tell who holds them."""
        found = self._found()
        if found is None:
            return
        self._sampler.watch(found.accelerators)
        kind, known = self._registered()
        here = {each.uid: each for each in found.accelerators if each.kind == kind and self._may_lend(each.uid)}
        lent = {uid for uid, is_present in known.items() if is_present}
        missing = lent - here.keys()
        lost = {uid: found.faults.get(uid, NOT_FOUND) for uid in missing & set(self._missing)}
        self._missing = missing
        if lost:
            logger.warning("host %s: lends %s no more. %s", self._host, ", ".join(lost), " ".join(found.problems))
        faulty = {uid: problem for uid, problem in found.faults.items() if uid in known.keys() - lent}
        back = self._steady(here.keys() - lent)
        unsteady = dict.fromkeys(here.keys() - lent - back, UNSTEADY)
        if withdrawn := lost | faulty | unsteady:
            self._withdraw(withdrawn)
        self._losses.update(lost.keys())
        if back:
            logger.info("host %s: lends %s", self._host, ", ".join(sorted(back)))
            devices = whole_devices([each for uid, each in here.items() if uid in back])
            for gpu in hosts.lend_again(self._host, devices):
                _tell(gpu, f"The {kind_name(gpu.kind)} {gpu.index} of its host ({gpu.name}) is in order again.")

    def _registered(self) -> tuple[str, dict[str, bool]]:
        """Return the kind that the host's group lends, and by id which devices are lent; one query."""
        host = Host.objects.filter(pk=self._host.pk)
        rows = list(host.values_list("group__accelerator", "gpus__uuid", "gpus__is_present"))
        return rows[0][0], {uid: is_present for _, uid, is_present in rows if uid}

    @transaction.atomic
    def _withdraw(self, problems: Mapping[str, str]) -> None:
        """Lend the devices of these ids no more, and tell who holds one."""
        for gpu in hosts.withdraw_gpus(self._host, problems):
            _tell(
                gpu,
                f"The {kind_name(gpu.kind)} {gpu.index} of its host ({gpu.name}) is not in order any more. "
                "No new session gets it, and what this one computes may be wrong.",
            )

    def _found(self) -> Found | None:
        """Return what is found; None where that cannot be told in time. Raises what the search does."""
        if self._search is None:
            self._search = Future()
            threading.Thread(target=_complete, args=(self._search, self._find), daemon=True).start()
        search = self._search
        if not wait([search], FIND_SECONDS).done:
            logger.warning("host %s: the search for accelerators has not ended yet", self._host)
            return None
        self._search = None
        return search.result()

    def _steady(self, in_order: Collection[str]) -> set[str]:
        """Return those to lend again: each time that one was withdrawn, it is to be in order for twice as long."""
        self._looks = Counter({uid: self._looks[uid] + 1 for uid in in_order})
        return {
            uid for uid, looks in self._looks.items() if looks >= min(2 ** max(self._losses[uid] - 1, 0), MAX_LOOKS)
        }


def _complete(search: Future[Found | None], find: Callable[[], Found | None]) -> None:
    try:
        search.set_result(find())
    except BaseException as error:
        search.set_exception(error)


def _tell(gpu: Gpu, text: str) -> None:
    for session in Session.objects.filter(lease__shares__gpu=gpu):
        notes.note(session, Reason.DEVICE_HEALTH, text)
