"""Clusters: several sessions of equal size that are placed, started and ended together."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0016_files_of_a_session"),
        ("compute", "0026_app_obstacle"),
        ("resources", "0018_cpu_overcommit"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Cluster",
            fields=[
                ("id", models.CharField(editable=False, max_length=16, primary_key=True, serialize=False)),
                ("size", models.PositiveSmallIntegerField(help_text="Members, the first one included")),
                (
                    "mode",
                    models.CharField(
                        choices=[
                            ("any", "one host where all fit, else the fewest"),
                            ("single-host", "all on one host"),
                            ("spread", "each on a host of its own"),
                        ],
                        default="any",
                        max_length=16,
                    ),
                ),
                ("shares_gpus", models.BooleanField(default=False, help_text="Members may have parts of the same GPU")),
                (
                    "runs_on_all",
                    models.BooleanField(default=False, help_text="Every member runs the command, not the first alone"),
                ),
                (
                    "max_restarts",
                    models.PositiveSmallIntegerField(
                        default=0, help_text="How often it starts again as a whole after a member failed"
                    ),
                ),
                ("restarts", models.PositiveSmallIntegerField(default=0, editable=False)),
                (
                    "network",
                    models.CharField(
                        editable=False,
                        help_text="Its addresses while it is placed, as a /24",
                        max_length=18,
                        null=True,
                        unique=True,
                    ),
                ),
                (
                    "host_addresses",
                    models.JSONField(
                        default=list,
                        editable=False,
                        help_text="Where it is placed: the address of each member's host, by rank",
                    ),
                ),
                (
                    "private_key",
                    models.TextField(blank=True, editable=False, help_text="By which its members log in to each other"),
                ),
                ("public_key", models.TextField(blank=True, editable=False)),
                (
                    "ended_at",
                    models.DateTimeField(
                        editable=False, help_text="When all of its members had ended", null=True
                    ),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="cluster",
            index=models.Index(condition=models.Q(("ended_at", None)), fields=["id"], name="cluster_live"),
        ),
        migrations.RemoveConstraint(
            model_name="session",
            name="session_live_name_unique",
        ),
        migrations.AddField(
            model_name="session",
            name="rank",
            field=models.PositiveSmallIntegerField(
                db_default=0,
                default=0,
                editable=False,
                help_text="In its cluster; its first member, and any other session: 0",
            ),
        ),
        migrations.AddConstraint(
            model_name="cluster",
            constraint=models.CheckConstraint(
                condition=models.Q(("size__gte", 2), ("size__lte", 64)), name="cluster_has_members"
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="cluster",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                editable=False,
                help_text="Of which it is a member",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="members",
                to="compute.cluster",
            ),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.UniqueConstraint(
                condition=models.Q(
                    ("rank", 0),
                    ("status__in", ["PARKED", "PENDING", "PREPARING", "RUNNING", "SCHEDULED", "TERMINATING"]),
                ),
                fields=("owner", "name"),
                name="session_live_name_unique",
            ),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.UniqueConstraint(
                condition=models.Q(("cluster__isnull", False)),
                fields=("cluster", "rank"),
                name="session_one_per_cluster_and_rank",
            ),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.CheckConstraint(
                condition=models.Q(("rank", 0), ("cluster__isnull", False), _connector="OR"),
                name="session_rank_is_of_a_cluster",
            ),
        ),
    ]
