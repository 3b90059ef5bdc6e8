"""Sessions whose placement the database refused are left out for a while. By column, as extensions are noted."""

from django.db import migrations, models

NOTE = """
CREATE TRIGGER note_refusal AFTER UPDATE OF refused_until ON compute_session FOR EACH ROW
    WHEN (OLD.refused_until IS DISTINCT FROM NEW.refused_until) EXECUTE FUNCTION compute_note_extension();
"""


class Migration(migrations.Migration):
    dependencies = [("compute", "0013_start_failures")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="refused_until",
            field=models.DateTimeField(
                blank=True,
                editable=False,
                help_text="Not placed until then, as the database refused it before",
                null=True,
            ),
        ),
        migrations.RunSQL(NOTE, "DROP TRIGGER note_refusal ON compute_session"),
    ]
