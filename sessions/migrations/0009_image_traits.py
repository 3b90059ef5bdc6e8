"""Notes of what changes with the images and architectures of hosts, on which a scheduling pass depends."""

from django.db import migrations

# By row: hosts write again and again, with statements that change nothing.
IMAGE_TRIGGERS = """
CREATE TRIGGER note_insert AFTER INSERT ON resources_hostimage FOR EACH ROW EXECUTE FUNCTION compute_note_all();
CREATE TRIGGER note_delete AFTER DELETE ON resources_hostimage FOR EACH ROW EXECUTE FUNCTION compute_note_all();
CREATE TRIGGER note_update AFTER UPDATE ON resources_image FOR EACH ROW
    WHEN ((OLD.architecture, OLD.is_local, OLD.reference) IS DISTINCT FROM
        (NEW.architecture, NEW.is_local, NEW.reference))
    EXECUTE FUNCTION compute_note_all();
CREATE TRIGGER note_architecture AFTER UPDATE ON resources_host FOR EACH ROW
    WHEN (OLD.architecture IS DISTINCT FROM NEW.architecture) EXECUTE FUNCTION compute_note_all();
"""
DROP_IMAGE_TRIGGERS = """
DROP TRIGGER note_insert ON resources_hostimage;
DROP TRIGGER note_delete ON resources_hostimage;
DROP TRIGGER note_update ON resources_image;
DROP TRIGGER note_architecture ON resources_host;
"""


class Migration(migrations.Migration):
    """Adds the triggers."""

    dependencies = [("compute", "0008_mounts_held_read_only"), ("resources", "0003_image_pulls_and_architectures")]
    operations = [migrations.RunSQL(IMAGE_TRIGGERS, DROP_IMAGE_TRIGGERS)]
