"""Hosts have a place in the topology; a change of it has the scheduler read them anew."""

import django.core.validators
from django.db import migrations, models

TRIGGER = """
CREATE TRIGGER note_topology AFTER UPDATE ON resources_host FOR EACH ROW
    WHEN (OLD.topology IS DISTINCT FROM NEW.topology) EXECUTE FUNCTION compute_note_all();
"""


class Migration(migrations.Migration):
    dependencies = [("resources", "0019_host_cluster_address"), ("compute", "0004_change_log")]

    operations = [
        migrations.AddField(
            model_name="host",
            name="topology",
            field=models.CharField(
                blank=True,
                db_default="",
                help_text="Where it stands, from far to near, such as row1/rack3: clusters go to hosts near each other",
                max_length=200,
                validators=[
                    django.core.validators.RegexValidator(
                        "^[\\w.-]+(/[\\w.-]+){0,7}\\Z",
                        "Use names of letters, digits and . - _ with / between them, eight at most.",
                    )
                ],
            ),
        ),
        migrations.RunSQL(TRIGGER, "DROP TRIGGER note_topology ON resources_host;"),
    ]
