"""Hosts say by which address others reach them for the networks of clusters."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("resources", "0018_cpu_overcommit")]

    operations = [
        migrations.AddField(
            model_name="host",
            name="cluster_address",
            field=models.CharField(
                blank=True,
                db_default="",
                editable=False,
                help_text="By which other hosts reach it for the networks of clusters; empty: it can have none",
                max_length=45,
            ),
        ),
    ]
