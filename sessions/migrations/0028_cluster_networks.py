"""What counts the networks of clusters, so that each comes back only after all others."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("compute", "0027_clusters")]

    operations = [
        migrations.RunSQL(
            "CREATE SEQUENCE compute_cluster_network MINVALUE 0 CYCLE", "DROP SEQUENCE compute_cluster_network"
        )
    ]
