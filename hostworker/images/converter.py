"""The background of conversions: one of this host's at a time, and reports of changes, in threads of their own."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from django.db import close_old_connections, connections
from django.db.models import QuerySet

from hostworker.images.image_maker import clear_if_dead, convert, report_changes, untag_deleted
from hostworker.runtime_protocol import EngineUnreachableError, Runtime
from resources.models import Host, HostImage
from sessions.models import ACTIVE_CONVERSIONS, ChangeReport, Conversion, ConversionState, ReportState

logger = logging.getLogger(__name__)

Work = Callable[[Runtime, str, threading.Event], None]


class Converter:
    """Works on the conversions and change reports of one host, in threads of its own."""

    def __init__(self) -> None:
        self._renew()

    def _renew(self) -> None:
        self._conversions = ThreadPoolExecutor(1, thread_name_prefix="convert")
        self._reports = ThreadPoolExecutor(2, thread_name_prefix="changes")
        self._under_way: set[tuple[str, str]] = set()
        self._stopping = threading.Event()

    def begin(self, runtime: Runtime, conversion_id: str) -> None:
        """Convert in the background, unless that is under way."""
        self._submit(self._conversions, convert, runtime, conversion_id)

    def begin_report(self, runtime: Runtime, session_id: str) -> None:
        """Report the changes of the session's container in the background, unless that is under way."""
        self._submit(self._reports, report_changes, runtime, session_id)

    def resume(self, runtime: Runtime, host: Host) -> None:
        """Take up what waits for this host, and clear away what a dead worker left of the rest. Three queries."""
        for conversion in unfinished(host).select_related("session").order_by("created_at"):
            if conversion.state == ConversionState.QUEUED:
                self.begin(runtime, str(conversion.pk))
            else:
                clear_if_dead(runtime, conversion)
        if deleted(host).exists():
            untag_deleted(runtime, host)  # what registries have, the worker's slower loop removes
        for session_id in waiting_reports(host).values_list("session_id", flat=True):
            self.begin_report(runtime, session_id)

    def end(self) -> None:
        """Give up what is under way, which then has failed, and wait for that."""
        self._stopping.set()
        for pool in (self._conversions, self._reports):
            pool.shutdown(cancel_futures=True)
        self._renew()  # for another worker in this process

    def _submit(self, pool: ThreadPoolExecutor, work: Work, runtime: Runtime, key: str) -> None:
        marked = (work.__name__, key)
        if marked not in self._under_way and not self._stopping.is_set():
            self._under_way.add(marked)
            pool.submit(self._do, work, runtime, key)

    def _do(self, work: Work, runtime: Runtime, key: str) -> None:
        try:
            close_old_connections()
            work(runtime, key, self._stopping)
        except EngineUnreachableError as error:
            logger.warning("%s: interrupted, will be cleared up: %s", key, error)
        except Exception:
            logger.exception("%s: interrupted, will be cleared up", key)
        finally:
            self._under_way.discard((work.__name__, key))
            connections.close_all()


def unfinished(host: Host) -> QuerySet[Conversion]:
    """Return the conversions of this host that wait, or are worked on."""
    return Conversion.objects.filter(host=host, state__in=ACTIVE_CONVERSIONS)


def deleted(host: Host) -> QuerySet[HostImage]:
    """Return the images of this host that were deleted."""
    return HostImage.objects.filter(host=host, image__removed_at__isnull=False)


def waiting_reports(host: Host) -> QuerySet[ChangeReport]:
    """Return the reports of changes that wait for this host."""
    return ChangeReport.objects.filter(session__host=host, state=ReportState.QUEUED)


_converter: Final = Converter()  # of this process
begin, begin_report, resume, end = _converter.begin, _converter.begin_report, _converter.resume, _converter.end
