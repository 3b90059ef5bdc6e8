"""Triggers that write the messages to webhooks in the transaction of the event, whoever writes that.

They run as the tables' owner, so that hosts, which write events too, need not and cannot read webhooks. With no webhook
for an event they cost a lookup of the owner's webhooks once a statement.
"""

from django.db import migrations

FUNCTION = """
CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO webhooks_webhookdelivery
        (webhook_id, message_id, type, {column}, body, state, attempts, created_at, due_at)
    SELECT hook.id, 'msg_' || replace(gen_random_uuid()::text, '-', ''), told.type, told.id, '', 'PENDING', 0, now(), now()
    FROM ({told}) told
    JOIN webhooks_webhook hook ON {covered} AND told.type = ANY (hook.event_types)
    JOIN accounts_user owner ON owner.id = hook.owner_id
    WHERE hook.is_enabled AND owner.is_active AND (owner.is_superuser OR NOT hook.covers_all)
    ORDER BY told.id, hook.id;
    RETURN NULL;
END $$;
CREATE TRIGGER tell_webhooks AFTER INSERT ON {table} REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION {name}();
"""
SESSION_EVENTS = FUNCTION.format(
    name="webhooks_tell_of_sessions",
    table="compute_sessionevent",
    column="session_event_id",
    told="""
        SELECT event.id, session.owner_id, 'session.' || lower(event.new_status) AS type
        FROM added event JOIN compute_session session ON session.id = event.session_id
        WHERE event.old_status <> event.new_status
    """,
    covered="(hook.owner_id = told.owner_id OR hook.covers_all)",
)
NOTIFICATIONS = FUNCTION.format(
    name="webhooks_tell_of_notifications",
    table="notifications_notification",
    column="notification_id",
    told="SELECT id, user_id, 'notification.' || lower(kind) AS type FROM added",
    covered="hook.owner_id = told.user_id",
)
DROP = """
DROP FUNCTION webhooks_tell_of_sessions() CASCADE;
DROP FUNCTION webhooks_tell_of_notifications() CASCADE;
"""


class Migration(migrations.Migration):
    """Adds the triggers."""

    dependencies = [("webhooks", "0001_initial")]
    operations = [migrations.RunSQL(SESSION_EVENTS + NOTIFICATIONS, DROP)]
