"""What ends by time: public apps and share links; and old rows that nothing asks for any more."""

from django.db.models import Q
from django.utils import timezone

from endpoints import services
from endpoints.revocations import KEPT
from sessions.models import Endpoint, Revocation, ShareLink, Ticket


def end_what_is_over() -> None:
    """Close public apps and void share links whose time is over, or whose owner's policy has none any more."""
    now = timezone.now()
    is_over = Q(public_until__lte=now) | Q(session__owner__policy__allow_public_apps=False)
    for endpoint in Endpoint.objects.filter(is_over, is_public=True):
        services.unpublish(endpoint, actor=None)
    is_over = Q(expires_at__lte=now) | Q(endpoint__session__owner__policy__allow_public_apps=False)
    for link in ShareLink.objects.filter(is_over, revoked_at=None):
        services.revoke(link, actor=None)


def forget() -> None:
    """Delete tickets and revocations about which every cookie has expired."""
    Ticket.objects.filter(expires_at__lt=timezone.now() - KEPT).delete()
    Revocation.objects.filter(at__lt=timezone.now() - KEPT).delete()
