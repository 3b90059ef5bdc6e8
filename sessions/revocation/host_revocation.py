"""Cuts what users have open in sessions of a host whose credentials were revoked: it may be in a stranger's hands."""

from typing import Any

from django.dispatch import receiver

from hostaccess.services import host_revoked
from sessions import notify
from sessions.lifecycle import Status
from sessions.models import Session


@receiver(host_revoked)
def _cut_connections(name: str, **kwargs: Any) -> None:
    """Have terminals and app proxies look again; SSH connections do so by themselves, every second."""
    found = Session.objects.filter(host__name=name, status=Status.RUNNING)
    running = list(found.values_list("pk", "owner_id", "project_id"))
    notify.sessions_changed(running)
    for session_id, *_ in running:
        notify.routes_changed(session_id)
