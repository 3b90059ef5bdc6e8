"""A change of a group's lifetime limit is noted for the scheduler."""

from django.db import migrations

NOTE = """
CREATE TRIGGER note_lifetime AFTER UPDATE OF max_lifetime ON resources_resourcegroup FOR EACH ROW
    WHEN (OLD.max_lifetime IS DISTINCT FROM NEW.max_lifetime) EXECUTE FUNCTION compute_note_all();
"""


class Migration(migrations.Migration):
    dependencies = [("compute", "0019_idle_rules"), ("resources", "0016_group_lifetime")]
    operations = [migrations.RunSQL(NOTE, "DROP TRIGGER note_lifetime ON resources_resourcegroup")]
