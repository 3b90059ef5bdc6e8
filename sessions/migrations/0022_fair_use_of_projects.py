"""What users have used of resource groups is recorded for each project, and for sessions without one."""

from importlib import import_module

import django.db.models.deletion
from django.db import migrations, models

BEFORE = import_module("sessions.migrations.0018_preemption").CHARGE
CHARGE = (
    BEFORE.replace("(group_id, user_id, cpu_seconds", "(group_id, user_id, project_id, cpu_seconds")
    .replace("(pool, NEW.owner_id, seconds", "(pool, NEW.owner_id, NEW.project_id, seconds")
    .replace("ON CONFLICT (user_id, group_id)", "ON CONFLICT (user_id, group_id, project_id)")
)


class Migration(migrations.Migration):
    dependencies = [("accounts", "0008_projects"), ("compute", "0021_parking")]

    operations = [
        migrations.RemoveConstraint(model_name="fairuse", name="fair_use_one_per_user_and_group"),
        migrations.AddField(
            model_name="fairuse",
            name="project",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="fair_uses",
                to="accounts.project",
            ),
        ),
        migrations.AddConstraint(
            model_name="fairuse",
            constraint=models.UniqueConstraint(
                fields=("user", "group", "project"), name="fair_use_one_per_association", nulls_distinct=False
            ),
        ),
        migrations.RunSQL(CHARGE, BEFORE),
    ]
