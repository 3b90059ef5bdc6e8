"""Policies bound how many tasks an array has."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0017_max_cluster_size"),
    ]

    operations = [
        migrations.AddField(
            model_name="resourcepolicy",
            name="max_array_tasks",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Of one array, never more than COMPUTE_MAX_ARRAY_TASKS",
                null=True,
                verbose_name="tasks of an array",
            ),
        ),
    ]
