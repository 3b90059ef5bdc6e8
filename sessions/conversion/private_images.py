"""Images made from sessions: their owners' list of them, and their deletion."""

from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from accounts import audit
from accounts.models import User
from resources.models import Host, Image, ImageSource
from sessions import notify
from sessions.errors import GENERAL, RejectedError
from sessions.lifecycle import LIVE
from sessions.models import Conversion, Session


def visible_to(user: User) -> QuerySet[Image]:
    """Return the images made from sessions that `user` may see and delete, the newest first: their own, or all."""
    images = Image.objects.filter(source=ImageSource.SESSION, removed_at=None).select_related("owner")
    if not user.is_superuser:
        images = images.filter(owner=user)
    live = Count("sessions", filter=Q(sessions__status__in=LIVE))
    return images.annotate(live_sessions=live).prefetch_related("on_hosts__host").order_by("-created_at", "-pk")


@audit.recorded_for_others("remove image")
def delete(image: Image, *, actor: User | None) -> None:
    """Delete the image; its hosts remove it from their engines, and from the registry. Does nothing the second time.

    The row stays, since ended sessions refer to it. Raises RejectedError while live sessions use it.
    """
    with transaction.atomic():
        # A launch that has passed its checks is waited for, and then counted: its row refers to this one.
        locked = Image.objects.select_for_update().get(pk=image.pk)
        if locked.removed_at:
            return
        users = Session.objects.filter(image=locked, status__in=LIVE).order_by("name")
        if names := list(users.values_list("name", flat=True)[:3]):
            more = users.count() - len(names)
            listed = ", ".join(names) + (f" and {more} more" if more > 0 else "")
            raise RejectedError(
                {GENERAL: f"{image} is in use by {listed}; end {'them' if len(names) > 1 else 'it'} first."}
            )
        locked.removed_at, locked.is_enabled = timezone.now(), False
        locked.save(update_fields=["removed_at", "is_enabled"])
        makers = Conversion.objects.filter(image=locked, host__isnull=False).values_list("host", flat=True)
        hosts = Host.objects.filter(Q(images__image=locked) | Q(pk__in=makers)).distinct()
        for name in hosts.values_list("name", flat=True):
            notify.send_to_host(name, "remove_deleted_images")
