"""Lock-outs after failed log-ins, for pages and API alike: by account and address, by address, and by account."""

import unicodedata
from typing import Any, Final

from axes.attempts import get_cool_off_threshold
from axes.handlers.database import AxesDatabaseHandler
from axes.helpers import get_failure_limit
from axes.models import AccessAttempt
from django.db.models import Sum
from django.http import HttpRequest

ADDRESS_FAILURE_LIMIT: Final = 50  # of all accounts together; people behind one address share it
ACCOUNT_FAILURE_LIMIT: Final = 200  # from all addresses together; who reaches it keeps the owner out for a while
MAX_WRITTEN_LENGTH: Final = 1000  # no account's name is as long; to normalize more takes the square of its length


def folded_username(request: HttpRequest, credentials: dict[str, Any] | None) -> str:
    """Return the name of an attempt as it is counted: without spaces, case and width, which spell the same account."""
    given = (credentials or {}).get("username") or request.POST.get("login", "")
    written = "".join(str(given).split())[:MAX_WRITTEN_LENGTH]
    return "".join(unicodedata.normalize("NFKC", written).casefold().split())[:255]


class LockoutHandler(AxesDatabaseHandler):  # type: ignore[misc]  # axes has no types
    """django-axes' database handler with limits per address and per account beside that of both together."""

    def get_failures(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> int:
        """Return the failures that count: those of account and address together, or the limit where another is met."""
        failures: int = super().get_failures(request, credentials)
        recent = AccessAttempt.objects.filter(attempt_time__gte=get_cool_off_threshold(request))
        by_address = recent.filter(ip_address=request.axes_ip_address)  # type: ignore[attr-defined]  # set by axes
        by_account = recent.filter(username=folded_username(request, credentials))
        if _sum(by_address) >= ADDRESS_FAILURE_LIMIT or _sum(by_account) >= ACCOUNT_FAILURE_LIMIT:
            return max(failures, int(get_failure_limit(request, credentials)))
        return failures


def _sum(attempts: Any) -> int:
    return int(attempts.aggregate(failures=Sum("failures_since_start"))["failures"] or 0)
