"""The storage roots that sessions need of their hosts, and the notes of what changes with the roots of hosts."""

import django.contrib.postgres.fields
from django.db import migrations, models

# Hosts write their rows again and again with INSERT ... ON CONFLICT UPDATE, which a statement's trigger takes for an insert.
ROOT_TRIGGERS = """
CREATE TRIGGER note_insert AFTER INSERT ON folders_hostroot FOR EACH ROW
    WHEN (NEW.is_present) EXECUTE FUNCTION compute_note_all();
CREATE TRIGGER note_delete AFTER DELETE ON folders_hostroot FOR EACH ROW
    WHEN (OLD.is_present) EXECUTE FUNCTION compute_note_all();
CREATE TRIGGER note_update AFTER UPDATE ON folders_hostroot FOR EACH ROW
    WHEN ((OLD.host_id, OLD.root_id, OLD.is_present) IS DISTINCT FROM (NEW.host_id, NEW.root_id, NEW.is_present))
    EXECUTE FUNCTION compute_note_all();
CREATE TRIGGER note_update AFTER UPDATE ON folders_storageroot FOR EACH ROW
    WHEN (OLD.name IS DISTINCT FROM NEW.name) EXECUTE FUNCTION compute_note_all();
"""
DROP_ROOT_TRIGGERS = """
DROP TRIGGER note_insert ON folders_hostroot;
DROP TRIGGER note_delete ON folders_hostroot;
DROP TRIGGER note_update ON folders_hostroot;
DROP TRIGGER note_update ON folders_storageroot;
"""


def roots(help_text: str) -> models.Field:
    """Return a field of ids of storage roots."""
    return django.contrib.postgres.fields.ArrayField(
        base_field=models.BigIntegerField(), default=list, editable=False, help_text=help_text, size=None
    )


class Migration(migrations.Migration):
    """Adds the columns and triggers."""

    dependencies = [("compute", "0005_mounts_and_conversions")]
    operations = [
        migrations.AddField("session", "required_roots", roots("Storage roots that its host must have")),
        migrations.AddField("session", "wanted_roots", roots("The same, if any host of its group has them")),
        migrations.RunSQL(ROOT_TRIGGERS, DROP_ROOT_TRIGGERS),
    ]
