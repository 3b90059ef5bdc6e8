"""Deployments whose replicas give way, or grow before a further one comes; a pass learns that a session may end for others, or no more, while it runs."""

from django.db import migrations, models

NOTE = """
CREATE TRIGGER note_is_preemptible AFTER UPDATE OF is_preemptible ON compute_session FOR EACH ROW
    WHEN (OLD.is_preemptible IS DISTINCT FROM NEW.is_preemptible) EXECUTE FUNCTION compute_note_extension();
"""


class Migration(migrations.Migration):
    dependencies = [("compute", "0033_replicas"), ("deployments", "0007_token_budgets")]

    operations = [
        migrations.AddField(
            model_name="deployment",
            name="is_preemptible",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="Replicas beyond the least end for sessions that need their resources",
                verbose_name="preemptible",
            ),
        ),
        migrations.AddField(
            model_name="deployment",
            name="max_fgpu",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Of each replica, to which its share grows before a further one comes; empty: it stays",
                null=True,
                verbose_name="milli-fGPU at most",
            ),
        ),
        migrations.RunSQL(NOTE, "DROP TRIGGER note_is_preemptible ON compute_session"),
    ]
