"""Preemptible sessions; what one has used counts in fair share as well when it returns to the queue."""

from importlib import import_module

from django.db import migrations, models

NOTES = "".join(
    f"""
CREATE TRIGGER note_{column} AFTER UPDATE OF {column} ON compute_session FOR EACH ROW
    WHEN (OLD.{column} IS DISTINCT FROM NEW.{column}) EXECUTE FUNCTION compute_note_extension();
"""
    for column in ("claim", "preempt_by")
)
DROP_NOTES = "DROP TRIGGER note_claim ON compute_session; DROP TRIGGER note_preempt_by ON compute_session;"

# The function of 0015, which also serves a session that goes on waiting: that has lost host and start by then.
FUNCTION = import_module("sessions.migrations.0015_fair_use").CHARGE.partition("CREATE TRIGGER")[0]
BEFORE = FUNCTION.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
CHARGE = (
    BEFORE.replace("host.id = NEW.host_id", "host.id = coalesce(NEW.host_id, OLD.host_id)")
    .replace("NEW.ended_at", "coalesce(NEW.ended_at, NEW.status_at)")
    .replace("NEW.started_at", "coalesce(NEW.started_at, OLD.started_at)")
)
CHARGE_RETURNED = """
CREATE TRIGGER charge_returned AFTER UPDATE OF status ON compute_session FOR EACH ROW
    WHEN (OLD.status = 'TERMINATING' AND NEW.status = 'PENDING' AND OLD.started_at IS NOT NULL)
    EXECUTE FUNCTION compute_charge_use();
"""


class Migration(migrations.Migration):
    dependencies = [("compute", "0017_projects")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="is_preemptible",
            field=models.BooleanField(
                default=False,
                help_text="May be ended for others, after a warning; in return its use counts less in fair share",
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="preempt_by",
            field=models.DateTimeField(
                blank=True,
                editable=False,
                help_text="When it is ended for another session, as its owner was warned",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="preempted_for",
            field=models.CharField(
                blank=True, editable=False, help_text="Id of the waiting session for which it is ended", max_length=16
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="preemptions",
            field=models.PositiveSmallIntegerField(
                default=0, editable=False, help_text="How often it was ended for another session"
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="claim",
            field=models.JSONField(
                blank=True,
                editable=False,
                help_text="What others are ended for: its host, its GPU shares, and when",
                null=True,
            ),
        ),
        migrations.RunSQL(NOTES, DROP_NOTES),
        migrations.RunSQL(CHARGE, BEFORE),
        migrations.RunSQL(CHARGE_RETURNED, "DROP TRIGGER charge_returned ON compute_session"),
    ]
