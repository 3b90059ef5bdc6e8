"""Sessions that a host failed to start: how often, and which hosts to avoid. The change log watches the new column."""

import django.contrib.postgres.fields
from django.db import migrations, models

COLUMNS = ", ".join(
    (
        *("id", "status", "status_at", "started_at", "owner_id", "resource_group_id", "host_id", "avoided_hosts"),
        *("cpu", "memory", "fgpu", "priority", "created_at", "not_before", "time_limit"),
        *("reason", "detail", "eta", "eta_reason"),
    )
)
NOTE_CHANGED = """
CREATE OR REPLACE FUNCTION compute_note_changed_sessions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO compute_change (sessions) SELECT array_agg(id) FROM (
        SELECT @COLUMNS@ FROM new_rows EXCEPT SELECT @COLUMNS@ FROM old_rows
    ) AS changed HAVING count(*) > 0;
    RETURN NULL;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("compute", "0012_start_deadlines")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="avoided_hosts",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.BigIntegerField(),
                default=list,
                editable=False,
                help_text="Those that failed an earlier attempt",
                size=None,
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="start_failures",
            field=models.PositiveSmallIntegerField(
                default=0, editable=False, help_text="How often a host failed to start it since it was submitted"
            ),
        ),
        migrations.RunSQL(
            NOTE_CHANGED.replace("@COLUMNS@", COLUMNS),
            NOTE_CHANGED.replace("@COLUMNS@", COLUMNS.replace("avoided_hosts", "avoided_host_id")),
        ),
        migrations.RemoveField(model_name="session", name="avoided_host"),
    ]
