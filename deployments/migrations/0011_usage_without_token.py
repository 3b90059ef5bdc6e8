"""What was used without a token is counted too, by deployment and month."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("deployments", "0010_host_names_and_ports")]

    operations = [
        migrations.AddField(
            "tokenusage",
            "deployment",
            models.ForeignKey(
                to="deployments.deployment",
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                db_index=False,
                null=True,
                editable=False,
            ),
        ),
        migrations.AlterField(
            "tokenusage",
            "token",
            models.ForeignKey(
                to="deployments.deploymenttoken",
                on_delete=django.db.models.deletion.CASCADE,
                related_name="usage",
                db_index=False,
                null=True,
                editable=False,
            ),
        ),
        migrations.AddConstraint(
            "tokenusage",
            models.UniqueConstraint(fields=("deployment", "month"), name="tokenless_usage_of_month"),
        ),
        migrations.AddConstraint(
            "tokenusage",
            models.CheckConstraint(condition=Q(token=None) ^ Q(deployment=None), name="usage_of_token_or_deployment"),
        ),
    ]
