"""Of a cluster, webhooks are told as of one session: what its first member comes to, and once all run or have ended."""

from importlib import import_module

from django.db import migrations

BEFORE = import_module("webhooks.migrations.0002_triggers").SESSION_EVENTS.partition("CREATE TRIGGER")[0]
ALONE = "WHERE event.old_status <> event.new_status"
TYPE = "'session.' || lower(event.new_status)"
assert ALONE in BEFORE
assert TYPE in BEFORE
NOW = BEFORE.replace(
    ALONE,
    """WHERE CASE
            WHEN session.cluster_id IS NULL THEN event.old_status <> event.new_status
            WHEN session.rank > 0 THEN false
            WHEN event.old_status = event.new_status THEN event.reason IN ('STARTED', 'CLUSTER_ENDED')
            ELSE event.new_status NOT IN ('RUNNING', 'TERMINATED', 'CANCELLED', 'ERROR')
        END""",
).replace(TYPE, "'session.' || CASE WHEN event.reason = 'STARTED' THEN 'running' ELSE lower(event.new_status) END")


class Migration(migrations.Migration):
    dependencies = [("webhooks", "0002_triggers"), ("compute", "0029_cluster_start")]
    operations = [
        migrations.RunSQL(
            NOW.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"),
            BEFORE.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"),
        )
    ]
