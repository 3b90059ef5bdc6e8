"""The texts of notifications, in the language that is active."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from notifications.kinds import FOR_SUPERADMINS, GOOD, OF_ARRAYS, OF_DEPLOYMENTS, NoticeKind
from notifications.models import Notification
from resources.accelerators.kinds import named_for
from sessions.words import reason_text
from translation.english import from_english

KIND_NAMES = {
    NoticeKind.STARTED: gettext_lazy("A session starts running"),
    NoticeKind.ENDED: gettext_lazy("A session ends by itself, by a limit or by an administrator"),
    NoticeKind.FAILED: gettext_lazy("A session fails"),
    NoticeKind.ENDING: gettext_lazy("A session is about to end (10 minutes and 1 minute before)"),
    NoticeKind.IDLE: gettext_lazy("A session is idle and is about to be ended"),
    NoticeKind.PARK_ENDING: gettext_lazy("A parked session is about to end (a day before)"),
    NoticeKind.OUT_OF_MEMORY: gettext_lazy("A process in a session is killed for lack of memory"),
    NoticeKind.RESIZE_REFUSED: gettext_lazy("A session was not resized, since its host could not do it"),
    NoticeKind.IMAGE_READY: gettext_lazy("A session was saved as an image"),
    NoticeKind.IMAGE_FAILED: gettext_lazy("A session could not be saved as an image"),
    NoticeKind.WEBHOOK_DISABLED: gettext_lazy("A webhook is disabled, as it takes no messages"),
    NoticeKind.DEPLOYMENT_DOWN: gettext_lazy("A deployment does not serve, for half a minute"),
    NoticeKind.DEPLOYMENT_UP: gettext_lazy("It serves again, for five minutes"),
    NoticeKind.REVISION_FAILED: gettext_lazy("A new revision is given up, and the one before serves again"),
    NoticeKind.ROLLOUT_DONE: gettext_lazy("A new revision runs in all replicas"),
    NoticeKind.ARRAY_ENDED: gettext_lazy("An array ends"),
    NoticeKind.ARRAY_FAILED: gettext_lazy("An array ends, and some of its tasks have failed"),
    NoticeKind.ARRAY_HELD: gettext_lazy("An array is held, as its tasks can not be started"),
    NoticeKind.TOKEN_EXPIRING: gettext_lazy("A token of a deployment expires within a week"),
    NoticeKind.BUDGET_LOW: gettext_lazy("80 percent of a token's budget of the month are spent"),
    NoticeKind.BUDGET_SPENT: gettext_lazy("A token's budget of the month is spent"),
    NoticeKind.HOST_FAULTY: gettext_lazy("A host fails to start sessions and is cordoned"),
    NoticeKind.GPU_OVERUSE: gettext_lazy("A session takes more of a GPU than its share"),
    NoticeKind.OUTPUT_FLOOD: gettext_lazy("A session floods its output and is slowed down"),
    NoticeKind.SHARED_LIMIT: gettext_lazy("A session holds most of what all sessions of its host share"),
    NoticeKind.POOL_FAILING: gettext_lazy("An elastic pool makes no hosts"),
    NoticeKind.HOST_BACK: gettext_lazy("A host that was cordoned for that takes sessions again"),
}


WARNINGS = frozenset(
    {
        *(NoticeKind.ENDING, NoticeKind.IDLE, NoticeKind.PARK_ENDING, NoticeKind.RESIZE_REFUSED),
        *(NoticeKind.TOKEN_EXPIRING, NoticeKind.BUDGET_LOW, NoticeKind.ARRAY_HELD),
    }
)


@dataclass(frozen=True, slots=True)
class NoticeText:
    """What is shown of a notification."""

    title: str
    body: str
    url: str  # path on the platform
    level: str  # success, warning or danger


def text_of(notification: Notification) -> NoticeText:
    """Return what to show of the notification."""
    kind = NoticeKind(notification.kind)
    return NoticeText(_title(kind, notification), _body(kind, notification), _url(kind, notification), level_of(kind))


def level_of(kind: NoticeKind) -> str:
    """Return how the notification looks."""
    if kind in GOOD:
        return "success"
    return "warning" if kind in WARNINGS else "danger"


TITLES = {
    NoticeKind.STARTED: gettext_lazy("%(name)s is running"),
    NoticeKind.ENDED: gettext_lazy("%(name)s has ended"),
    NoticeKind.FAILED: gettext_lazy("%(name)s has failed"),
    NoticeKind.IDLE: gettext_lazy("%(name)s is idle and about to end"),
    NoticeKind.PARK_ENDING: gettext_lazy("%(name)s is parked and about to end"),
    NoticeKind.OUT_OF_MEMORY: gettext_lazy("%(name)s ran out of memory"),
    NoticeKind.RESIZE_REFUSED: gettext_lazy("%(name)s was not resized"),
    NoticeKind.IMAGE_READY: gettext_lazy("The image %(image)s is ready"),
    NoticeKind.IMAGE_FAILED: gettext_lazy("The image %(image)s was not made"),
    NoticeKind.WEBHOOK_DISABLED: gettext_lazy("The webhook %(name)s is disabled"),
    NoticeKind.DEPLOYMENT_DOWN: gettext_lazy("%(name)s does not serve"),
    NoticeKind.DEPLOYMENT_UP: gettext_lazy("%(name)s serves again"),
    NoticeKind.REVISION_FAILED: gettext_lazy("Revision %(revision)s of %(name)s was given up"),
    NoticeKind.ROLLOUT_DONE: gettext_lazy("All replicas of %(name)s run revision %(revision)s"),
    NoticeKind.ARRAY_ENDED: gettext_lazy("The array %(name)s has ended"),
    NoticeKind.ARRAY_FAILED: gettext_lazy("The array %(name)s has failed"),
    NoticeKind.ARRAY_HELD: gettext_lazy("The array %(name)s is held"),
    NoticeKind.TOKEN_EXPIRING: gettext_lazy("The token %(token)s of %(name)s expires soon"),
    NoticeKind.BUDGET_LOW: gettext_lazy("80 percent of the budget of %(token)s are spent"),
    NoticeKind.BUDGET_SPENT: gettext_lazy("The budget of %(token)s is spent"),
    NoticeKind.HOST_FAULTY: gettext_lazy("Host %(host)s is cordoned: it fails to start sessions"),
    NoticeKind.GPU_OVERUSE: gettext_lazy("%(name)s takes more of a GPU than its share"),
    NoticeKind.OUTPUT_FLOOD: gettext_lazy("%(name)s floods its output"),
    NoticeKind.SHARED_LIMIT: gettext_lazy("%(name)s holds most of what all sessions of its host share"),
    NoticeKind.POOL_FAILING: gettext_lazy("No hosts are made for the resource group %(group)s"),
    NoticeKind.HOST_BACK: gettext_lazy("Host %(host)s takes sessions again"),
}


def _title(kind: NoticeKind, notification: Notification) -> str:
    facts = notification.facts
    if kind == NoticeKind.ENDING:
        return ending_title(facts["name"], facts["minutes"])
    if kind == NoticeKind.IDLE and "minutes" in facts:
        return idle_title(facts["name"], facts["minutes"], is_parked=facts["is_parked"])
    title: str = str(TITLES[kind]) % facts
    return title


def ending_title(name: str, minutes: int) -> str:
    """Return the text that a session ends in so many minutes."""
    text = ngettext("%(name)s ends in %(minutes)s minute", "%(name)s ends in %(minutes)s minutes", minutes)
    return text % {"name": name, "minutes": minutes}


def idle_title(name: str, minutes: int, *, is_parked: bool) -> str:
    """Return the text that an idle session ends, or is parked, in so many minutes."""
    if is_parked:
        text = ngettext(
            "%(name)s is idle and is parked in %(minutes)s minute",
            "%(name)s is idle and is parked in %(minutes)s minutes",
            minutes,
        )
    else:
        text = ngettext(
            "%(name)s is idle and ends in %(minutes)s minute",
            "%(name)s is idle and ends in %(minutes)s minutes",
            minutes,
        )
    return text % {"name": name, "minutes": minutes}


_OF_ALL_TASKS = gettext_lazy("Tasks: %(succeeded)s succeeded, %(failed)s failed, %(cancelled)s cancelled.")
_PROBLEMS = {
    NoticeKind.ARRAY_ENDED: _OF_ALL_TASKS,
    NoticeKind.ARRAY_FAILED: _OF_ALL_TASKS,
    NoticeKind.IMAGE_FAILED: "%(problem)s",
    NoticeKind.RESIZE_REFUSED: "%(problem)s",
    NoticeKind.HOST_FAULTY: gettext_lazy("It is probed, and returns once it starts a container. %(problem)s"),
    NoticeKind.GPU_OVERUSE: gettext_lazy(
        "On host %(host)s: %(problem)s It goes on, as its resource group ends no session for that."
    ),
    NoticeKind.OUTPUT_FLOOD: gettext_lazy("On host %(host)s: %(problem)s"),
    NoticeKind.SHARED_LIMIT: gettext_lazy(
        "On host %(host)s: %(problem)s It is ended if it holds more than half of it."
    ),
    NoticeKind.POOL_FAILING: "%(problem)s",
    NoticeKind.DEPLOYMENT_DOWN: gettext_lazy("No replica takes requests. %(problem)s"),
    NoticeKind.REVISION_FAILED: gettext_lazy("%(problem)s The revision before is current again."),
    NoticeKind.ARRAY_HELD: gettext_lazy("%(problem)s Release it once that is put right."),
    NoticeKind.WEBHOOK_DISABLED: gettext_lazy("%(problem)s Its page has the log, and enables it again."),
}


def _body(kind: NoticeKind, notification: Notification) -> str:
    facts = notification.facts
    if template := _PROBLEMS.get(kind):
        return str(template) % {**facts, "problem": from_english(facts["detail"])}
    match kind:
        case NoticeKind.STARTED | NoticeKind.DEPLOYMENT_UP | NoticeKind.ROLLOUT_DONE:
            return ""
        case _kind if _kind in OF_DEPLOYMENTS:
            return _token_body(kind, facts)
        case NoticeKind.HOST_BACK:
            return _("A probe has started a container on it.")
        case NoticeKind.ENDING:
            return _ending_body(facts)
        case NoticeKind.IDLE if "minutes" in facts:
            advice = _("Use it to keep it running, or put that off.")
            return f"{from_english(facts['detail'])} {advice}"
        case NoticeKind.PARK_ENDING:
            end = parse_datetime(facts["ends_at"]) or timezone.now()
            return _("Its files are kept until %(time)s UTC. Resume it to keep what you need.") % {
                "time": f"{end:%Y-%m-%d %H:%M}"
            }
        case NoticeKind.IMAGE_READY:
            return _("Its full name is %(reference)s.") % {"reference": facts["reference"]}
        case _other:
            return named_for(facts.get("device", ""), from_english(reason_text(facts["reason"], facts["detail"])))


def _token_body(kind: NoticeKind, facts: Mapping[str, Any]) -> str:
    if kind == NoticeKind.TOKEN_EXPIRING:
        end = parse_datetime(facts["ends_at"]) or timezone.now()
        return _("Programs that send it are refused from %(time)s UTC on. Make another one in time.") % {
            "time": f"{end:%Y-%m-%d %H:%M}"
        }
    if facts["budget"] == "monthly_requests":
        text = _("It has used %(used)s of %(limit)s requests of the month at %(name)s.") % facts
    else:
        text = _("It has used %(used)s of %(limit)s tokens of models of the month at %(name)s.") % facts
    if kind == NoticeKind.BUDGET_LOW:
        return text
    return f"{text} {_('Its requests are refused until the month ends, or its limit is raised.')}"


def _ending_body(facts: Mapping[str, Any]) -> str:
    end = parse_datetime(facts["ends_at"]) or timezone.now()
    if facts.get("is_preempted"):
        return _(
            "It ends at %(time)s UTC, as it is preemptible and another session needs what it holds. "
            "Save what you want to keep."
        ) % {"time": f"{end:%H:%M}"}
    return _("It ends at %(time)s UTC. Save what you want to keep, or extend it.") % {"time": f"{end:%H:%M}"}


def _url(kind: NoticeKind, notification: Notification) -> str:
    if kind in FOR_SUPERADMINS:
        return reverse("overview:host", args=[notification.facts["host"]])
    if kind in OF_DEPLOYMENTS:
        return reverse("deployments:detail", args=[notification.facts["deployment"]])
    if kind in OF_ARRAYS:
        return reverse("arrays:detail", args=[notification.facts["array"]])
    if kind == NoticeKind.WEBHOOK_DISABLED:
        return reverse("webhooks:detail", args=[notification.facts["webhook"]])
    if kind == NoticeKind.IMAGE_READY or notification.session_id is None:
        return reverse("sessions:private-images")
    return reverse("sessions:detail", args=[notification.session_id])
