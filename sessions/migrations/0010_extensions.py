"""How much longer than its limits a session runs, on which the estimates of those that wait depend."""

from datetime import timedelta

from django.db import migrations, models

# By column, so that the many statements which move sessions pay nothing.
NOTE_EXTENSIONS = """
CREATE TRIGGER note_extension AFTER UPDATE OF extension ON compute_session FOR EACH ROW
    WHEN (OLD.extension IS DISTINCT FROM NEW.extension) EXECUTE FUNCTION compute_note_extension();
"""
NOTE_FUNCTION = """
CREATE FUNCTION compute_note_extension() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO compute_change (sessions) VALUES (ARRAY[NEW.id]);
    RETURN NULL;
END $$;
"""


class Migration(migrations.Migration):
    """Adds the column and the trigger that notes its changes."""

    dependencies = [("compute", "0009_image_traits"), ("accounts", "0003_extensions")]
    operations = [
        migrations.AddField(
            model_name="session",
            name="extension",
            field=models.DurationField(
                default=timedelta(0),
                editable=False,
                help_text="How much longer than its limits allow it was let run",
            ),
        ),
        migrations.RunSQL(NOTE_FUNCTION + NOTE_EXTENSIONS, "DROP FUNCTION compute_note_extension() CASCADE"),
    ]
