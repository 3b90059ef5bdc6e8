"""Ports of clusters that run in the network of their hosts."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compute", "0029_cluster_start"), ("resources", "0021_cluster_host_network")]

    operations = [
        migrations.AddField(
            model_name="cluster",
            name="first_port",
            field=models.PositiveIntegerField(
                editable=False,
                help_text="While it is placed and has the network of its hosts: of the ports that are its own there",
                null=True,
            ),
        ),
    ]
