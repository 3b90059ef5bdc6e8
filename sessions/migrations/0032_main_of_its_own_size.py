"""Clusters whose first member has a size of its own."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("compute", "0031_elastic_clusters")]

    operations = [
        migrations.AddField(
            model_name="cluster",
            name="main_differs",
            field=models.BooleanField(
                db_default=False, default=False, editable=False, help_text="The first member has a size of its own"
            ),
        ),
    ]
