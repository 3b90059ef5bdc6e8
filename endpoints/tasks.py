"""Celery's periodic task of apps, run on the scheduler's queue: access that is over ends, old rows go, and
deployments without a port get one."""

from celery import shared_task
from django.db.models import Q

from deployments.models import DeploymentTicket
from endpoints import services
from endpoints.routing import ports
from endpoints.routing.revocations import RETENTION
from resources import clock
from sessions.models import Endpoint, Revocation, ShareLink, Ticket, forbids_public_apps


@shared_task
def enforce_deadlines() -> None:
    """End expired access and delete stale rows. Safe to repeat."""
    end_expired_access()
    ports.assign_to_deployments()
    delete_stale_rows()


def end_expired_access() -> None:
    """Unpublish apps and revoke share links that have expired, or that a policy allows no longer."""
    now = clock.now()
    is_over = Q(public_until__lte=now) | forbids_public_apps("session__")
    for endpoint in Endpoint.objects.filter(is_over, is_public=True):
        services.unpublish(endpoint, actor=None)
    is_over = Q(expires_at__lte=now) | forbids_public_apps("endpoint__session__")
    for link in ShareLink.objects.filter(is_over, revoked_at=None):
        services.revoke(link, actor=None)


def delete_stale_rows() -> None:
    """Delete the tickets and revocations that concern only cookies that have expired."""
    for tickets in (Ticket.objects, DeploymentTicket.objects):
        tickets.filter(expires_at__lt=clock.now() - RETENTION).delete()
    Revocation.objects.filter(at__lt=clock.now() - RETENTION).delete()
