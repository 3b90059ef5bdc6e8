"""What a user may open whose name holds a text, by kind, a few of each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.text import capfirst
from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_lazy as _

from accounts.models import Project, User
from arrays.models import Array
from deployments.models import Deployment
from folders.models import Folder
from pages.help import documents
from pages.help.views import names_for
from pages.overview import hosts
from sessions.lifecycle import LIVE, Status
from sessions.models import Session

MAX_OF_A_KIND: Final = 5
MAX_CHARACTERS: Final = 100  # of a search


@dataclass(frozen=True, slots=True)
class FoundPage:
    """A page about something that was found."""

    name: str
    url: str
    detail: str = ""  # beside the name
    icon: str = ""  # in place of its kind's


Find = Callable[[User, str], Iterator[FoundPage]]


@dataclass(frozen=True, slots=True)
class FoundKind:
    """Things of a kind; `find` yields those whose names hold a text that the user may open, in order."""

    title: str | Promise
    icon: str  # of static/img/icons.svg
    find: Find


def search(user: User, text: str) -> list[tuple[FoundKind, list[FoundPage]]]:
    """Return what holds `text`, by kind; nothing for an empty text."""
    text = text.replace("\0", "").strip()[:MAX_CHARACTERS]  # PostgreSQL refuses NUL
    found = ((kind, list(kind.find(user, text))) for kind in KINDS) if text else ()
    return [(kind, pages) for kind, pages in found if pages]


def _sessions(user: User, text: str) -> Iterator[FoundPage]:
    """Yield sessions that have not ended, by name or id; if there is but one, what can be done with it too."""
    named = Q(name__icontains=text) | Q(pk__startswith=text.lower())
    live = Session.objects.operable_by(user).outside_arrays().filter(status__in=LIVE)  # by the index of their names
    sessions = live.filter(named).order_by("-created_at")[:MAX_OF_A_KIND]
    for session in sessions:
        url = reverse("sessions:detail", args=[session.pk])
        yield FoundPage(session.name, url, capfirst(gettext(session.status.lower())))
        if len(sessions) == 1:
            yield from _actions(session)


def _actions(session: Session) -> Iterator[FoundPage]:
    for name, label, icon in (
        *([("terminal", gettext("Terminal"), "terminal")] if session.status == Status.RUNNING else []),
        ("logs", gettext("Output"), "logs"),
        ("terminate", gettext("Terminate"), "power"),
    ):
        yield FoundPage(f"{session.name}: {label}", reverse(f"sessions:{name}", args=[session.pk]), icon=icon)


def _named(view: str, rows: Callable[[User], QuerySet[Any]], field: str = "name", key: str = "pk") -> Find:
    """Return the search by `field` among the rows that a user may see, each of which `view` shows by its key."""

    def find(user: User, text: str) -> Iterator[FoundPage]:
        found = rows(user).filter(**{f"{field}__icontains": text}).order_by(field).distinct()
        for name, value in found.values_list(field, key)[:MAX_OF_A_KIND]:
            yield FoundPage(name, reverse(view, args=[value]))

    return find


def _documents(user: User, text: str) -> Iterator[FoundPage]:
    """Yield sections of the help by their titles, those of whole documents first."""
    names, language, wanted = names_for(user), get_language() or "", text.lower()
    of_all = [documents.load(name, names, language) for name in sorted(names)]
    found = [(each.level, each, of) for of in of_all for each in of.sections if wanted in each.title.lower()]
    for level, section, document in sorted(found, key=lambda each: each[0])[:MAX_OF_A_KIND]:
        url = reverse("help:page", args=[document.name])
        yield FoundPage(section.title, f"{url}#{section.anchor}", document.title if level > 1 else "")


def _people(user: User) -> QuerySet[User]:
    return User.objects.all() if user.is_superuser else User.objects.none()


KINDS: Final = (
    FoundKind(_("Sessions"), "layers", _sessions),
    FoundKind(_("Arrays"), "columns", _named("arrays:detail", lambda user: Array.objects.visible_to(user).live())),
    FoundKind(
        _("Deployments"), "globe", _named("deployments:detail", lambda user: Deployment.objects.visible_to(user).live())
    ),
    FoundKind(
        _("Data folders"), "folder", _named("folders:browse", lambda user: Folder.objects.readable_by(user).live())
    ),
    FoundKind(_("Projects"), "users", _named("overview:project", lambda user: Project.objects.visible_to(user))),
    FoundKind(_("Hosts"), "host", _named("overview:host", hosts.visible_to, key="name")),
    FoundKind(_("Users"), "user", _named("overview:user", _people, field="email")),
    FoundKind(_("Help"), "help", _documents),
)
