"""From when a session's limits count at the latest, so that the ends which the scheduler planned with never move."""

from django.db import migrations, models

WATCHED = (
    *("fgpu_per_gpu", "placement", "queue_order", "ageing", "reservation_delay", "is_active"),
    "start_allowance",
)


def trigger(columns):
    old, new = (", ".join(f"{row}.{name}" for name in columns) for row in ("OLD", "NEW"))
    return f"""
DROP TRIGGER note_update ON resources_resourcegroup;
CREATE TRIGGER note_update AFTER UPDATE ON resources_resourcegroup FOR EACH ROW
    WHEN (({old}) IS DISTINCT FROM ({new})) EXECUTE FUNCTION compute_note_all();
"""


class Migration(migrations.Migration):
    """Adds the column, and has changes of a group's allowance noted."""

    dependencies = [("compute", "0011_usage_and_pull_progress"), ("resources", "0009_start_allowance")]
    operations = [
        migrations.AddField(
            model_name="session",
            name="start_by",
            field=models.DateTimeField(
                blank=True,
                editable=False,
                help_text="Its limits count from its start, but from then at the latest",
                null=True,
            ),
        ),
        migrations.RunSQL(trigger(WATCHED), trigger(WATCHED[:-1])),
    ]
