"""When a cluster runs as a whole, from which the limits of all its members count."""

from django.db import migrations, models

# By column, so that the many statements which move sessions pay nothing.
NOTE_START = """
CREATE TRIGGER note_start AFTER UPDATE OF start_by ON compute_session FOR EACH ROW
    WHEN (OLD.status = NEW.status AND OLD.start_by IS DISTINCT FROM NEW.start_by)
    EXECUTE FUNCTION compute_note_extension();
"""


class Migration(migrations.Migration):
    dependencies = [("compute", "0028_cluster_networks")]
    operations = [
        migrations.AddField(
            model_name="cluster",
            name="started_at",
            field=models.DateTimeField(editable=False, help_text="When the last of its members ran", null=True),
        ),
        migrations.RunSQL(NOTE_START, "DROP TRIGGER note_start ON compute_session"),
    ]
