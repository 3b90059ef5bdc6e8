"""Policies bound how many members a cluster has."""

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0016_files_of_a_session"),
    ]

    operations = [
        migrations.AddField(
            model_name="resourcepolicy",
            name="max_cluster_size",
            field=models.PositiveSmallIntegerField(
                db_default=64,
                default=64,
                help_text="Of one session, each with its own amounts; 1: no clusters",
                validators=[MinValueValidator(1), MaxValueValidator(64)],
                verbose_name="members of a cluster",
            ),
        ),
    ]
