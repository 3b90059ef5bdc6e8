"""Clusters that grow while there is room: how far, and which members they have only then."""

from django.db import migrations, models
from django.db.models import F, Q


class Migration(migrations.Migration):
    dependencies = [("compute", "0030_cluster_first_port")]

    operations = [
        migrations.RemoveConstraint(model_name="cluster", name="cluster_has_members"),
        migrations.AddField(
            model_name="cluster",
            name="max_size",
            field=models.PositiveSmallIntegerField(
                blank=True, help_text="Members to which it grows while there is room; empty: it does not", null=True
            ),
        ),
        migrations.AlterField(
            model_name="cluster",
            name="size",
            field=models.PositiveSmallIntegerField(help_text="Members with which it starts, the first one included"),
        ),
        migrations.AlterField(
            model_name="cluster",
            name="host_addresses",
            field=models.JSONField(
                default=list,
                editable=False,
                help_text="Where it is placed: the address of each member's host, by rank; empty without",
            ),
        ),
        migrations.AddConstraint(
            model_name="cluster",
            constraint=models.CheckConstraint(
                condition=Q(size__gte=2, size__lte=64, max_size=None)
                | Q(size__gte=1, max_size__gt=F("size"), max_size__lte=64),
                name="cluster_has_members",
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="is_elastic",
            field=models.BooleanField(
                db_default=False,
                default=False,
                editable=False,
                help_text="Not one with which its cluster starts: it runs while there is room, and ends before others",
            ),
        ),
    ]
