"""Resource groups whose clusters run in the network of their hosts."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("resources", "0020_host_topology")]

    operations = [
        migrations.AddField(
            model_name="resourcegroup",
            name="cluster_host_network",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="For users who are trusted with the hosts, where these have InfiniBand or RoCE. Members of "
                "clusters that may be on several hosts run in the network of their hosts, with the devices of "
                "/dev/infiniband. Nothing then keeps them from the hosts' own services, from other sessions there and "
                "from private networks, and they offer no apps. It holds for clusters that start from then on.",
                verbose_name="host network for clusters",
            ),
        ),
    ]
