"""The bodies of messages: type, timestamp and data, as the Standard Webhooks specification recommends."""

from datetime import datetime
from typing import Any

from rest_framework.renderers import JSONRenderer

from accounts.signing_in.language import language_of
from notifications.delivery.texts import text_of
from sessions.models import Session, member_name
from sessions.serializers import SessionEventSerializer
from webhooks import event_types
from webhooks.models import WebhookDelivery


def body_of(delivery: WebhookDelivery) -> str:
    """Return the JSON text of a message. Raises LookupError where what it tells of was deleted meanwhile.

    The event is as it was; the session's other values are those of now.
    """
    data: dict[str, Any]
    if delivery.session_event is not None:
        event = delivery.session_event
        data = {"event": SessionEventSerializer(event).data, "session": _session(event.session, event.new_status)}
        return _json(delivery.type, event.at, data)
    if delivery.notification is not None:
        notice = delivery.notification
        session = notice.session
        with language_of(notice.user):
            text = text_of(notice)
        notification = {"id": notice.pk, "kind": notice.kind, "title": text.title, "body": text.body, "path": text.url}
        shown = _session(session, session.status) if session else None
        data = {"notification": notification, "session": shown}
        return _json(delivery.type, notice.created_at, data)
    if delivery.type != event_types.TEST:
        raise LookupError(delivery.message_id)
    return _json(delivery.type, delivery.created_at, {"webhook": {"id": delivery.webhook_id}})


def _session(session: Session, status: str) -> dict[str, Any]:
    return {
        "id": session.pk,
        "name": session.name,
        "kind": session.kind,
        "cluster": {"size": session.cluster.size, "member": member_name(session.rank)} if session.cluster else None,
        "status": status,
        "owner": session.owner.email,
        "project": session.project.name if session.project else None,
        "resource_group": session.resource_group.name,
        "image": session.image.reference,
        "cpu": session.cpu,
        "memory": session.memory,
        "fgpu": f"{session.fgpu / 1000:.3f}".rstrip("0").rstrip("."),
        "created_at": session.created_at,
        "started_at": session.started_at,
        "ended_at": session.ended_at,
        "exit_code": session.exit_code,
    }


def _json(kind: str, at: datetime, data: dict[str, Any]) -> str:
    return JSONRenderer().render({"type": kind, "timestamp": at, "data": data}).decode()
