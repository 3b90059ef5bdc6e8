"""The page of environments: what may be launched, in which versions, and where it is already."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST
from packaging.version import InvalidVersion, Version

from accounts.models import User
from accounts.requests import UserRequest, signed_in_page
from resources.images import builds
from resources.models import App, Host, HostStatus, Image, ImageSource, ResourceGroup

SEARCH_FROM: Final = 8  # environments, fewer of which need no search


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRow:
    """A version of an environment."""

    image: Image
    apps: tuple[App, ...]
    build: builds.BuildStatus | None
    on_hosts: int  # of the viewer's

    @property
    def is_usable(self) -> bool:
        """True if sessions can run it now."""
        return self.image.is_enabled and (self.build is None or self.build.is_usable)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentCard:
    """An environment with its versions, the newest first."""

    name: str
    versions: tuple[VersionRow, ...]

    @property
    def description(self) -> str:
        """What its newest version that is described says."""
        return next((row.image.description for row in self.versions if row.image.description), "")

    @property
    def apps(self) -> list[App]:
        """The apps of all versions, each once."""
        return list({app.name: app for row in self.versions for app in row.apps}.values())

    @property
    def is_offered(self) -> bool:
        """True if a version of it is turned on."""
        return any(row.image.is_enabled for row in self.versions)


@signed_in_page
def environment_list(request: UserRequest) -> HttpResponse:
    """Show the environments that the user may launch, and to everybody which more there are."""
    search = request.GET.get("q", "").replace("\0", "").strip()
    hosts = _hosts(request.user)
    cards = _cards(_images(request.user, search), hosts)
    shown = [card for card in cards if card.is_offered]
    context = {
        "cards": shown,
        "hidden": [card for card in cards if not card.is_offered],
        "host_count": len(hosts),
        "search": search,
        "has_search": bool(search) or len(shown) >= SEARCH_FROM,
        "is_building": any(row.build and row.build.is_active for card in shown for row in card.versions),
        "private_count": Image.objects.filter(owner=request.user, source=ImageSource.SESSION, removed_at=None).count(),
    }
    template = "overview/_environments.html" if request.htmx else "overview/environments.html"
    return render(request, template, context)


@require_POST
@login_required
def enable(request: UserRequest, image_id: int) -> HttpResponse:
    """Turn an image on, which has it built where it is built here."""
    if not request.user.is_superuser:
        raise Http404
    image = get_object_or_404(Image, pk=image_id, owner=None, removed_at=None)
    Image.objects.filter(pk=image.pk).update(is_enabled=True)
    messages.success(
        request,
        _("%(image)s is turned on. If it must be built, this page shows how far it is.") % {"image": image},
    )
    return redirect("overview:environments")


def _images(user: User, search: str) -> list[Image]:
    """Return the images for everybody, those that are turned off too, and those that the user named; two queries."""
    mine = Q(owner=user, source=ImageSource.UNLISTED, is_enabled=True)
    images = Image.objects.filter(Q(owner=None) | mine, removed_at=None)
    if not user.policy.allow_unlisted_images:
        images = images.filter(owner=None)
    if not user.is_superuser:
        images = images.filter(Q(is_enabled=True) | ~Q(enable_hint=""))
    if search:
        match = Q(environment__icontains=search) | Q(version__icontains=search) | Q(description__icontains=search)
        images = images.filter(match | Q(reference__icontains=search))
    return list(images.prefetch_related("apps").order_by("environment", "pk"))


def _hosts(user: User) -> set[int]:
    """Return the ids of the hosts on which the user's sessions may run now; one query."""
    ready = Host.objects.filter(status=HostStatus.READY, group__in=ResourceGroup.objects.usable_by(user).values("pk"))
    return set(ready.values_list("pk", flat=True))


def _cards(images: Iterable[Image], hosts: set[int]) -> list[EnvironmentCard]:
    known = list(images)
    counted = Image.objects.filter(pk__in=[image.pk for image in known], on_hosts__host__in=hosts)
    on_hosts = dict(counted.order_by().values_list("pk").annotate(Count("on_hosts")))
    building = {status.image.pk: status for status in builds.statuses()}
    rows: dict[str, list[VersionRow]] = {}
    for image in known:
        row = VersionRow(
            image=image,
            apps=tuple(image.apps.all()),
            build=building.get(image.pk),
            on_hosts=on_hosts.get(image.pk, 0),
        )
        rows.setdefault(image.environment, []).append(row)
    return [
        EnvironmentCard(name=name, versions=tuple(sorted(versions, key=_age, reverse=True)))
        for name, versions in sorted(rows.items(), key=lambda item: item[0].casefold())
    ]


def _age(row: VersionRow) -> tuple[bool, Version, str]:
    """Return the key by which a newer version is greater; names that are no versions come last."""
    try:
        return True, Version(row.image.version), row.image.version
    except InvalidVersion:
        return False, Version("0"), row.image.version
