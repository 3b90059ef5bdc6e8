"""Sessions may wait for arrays. Of a target that is an array, old code finds no session, and so waits on."""

import django.db.models.deletion
from django.db import migrations, models

# Schedulers that keep their state read those that wait for an array anew when it has started, ended or begun again.
TRIGGER = """
CREATE FUNCTION compute_note_dependents_of_array() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO compute_change (sessions)
    SELECT array_agg(from_session_id) FROM compute_session_depends_on WHERE to_array_id = NEW.id HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE TRIGGER note_dependents AFTER UPDATE ON arrays_array FOR EACH ROW
    WHEN ((OLD.state, OLD.started_at) IS DISTINCT FROM (NEW.state, NEW.started_at))
    EXECUTE FUNCTION compute_note_dependents_of_array();
"""


class Migration(migrations.Migration):

    dependencies = [("compute", "0035_dependency_kinds"), ("arrays", "0002_started_at")]
    operations = [
        migrations.AddField(
            model_name="dependency",
            name="to_array",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="links_of_dependents",
                to="arrays.array",
            ),
        ),
        migrations.AlterField(
            model_name="dependency",
            name="to_session",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="links_of_dependents",
                to="compute.session",
            ),
        ),
        migrations.AlterUniqueTogether(
            name="dependency",
            unique_together={("from_session", "to_session"), ("from_session", "to_array")},
        ),
        migrations.AddConstraint(
            model_name="dependency",
            constraint=models.CheckConstraint(
                condition=models.Q(to_session__isnull=True) ^ models.Q(to_array__isnull=True),
                name="dependency_has_one_target",
            ),
        ),
        migrations.RunSQL(TRIGGER, "DROP FUNCTION compute_note_dependents_of_array CASCADE"),
    ]
