"""The administration calls it a GPU share."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("compute", "0023_live_resize")]

    operations = [migrations.AlterModelOptions(name="gpushare", options={"verbose_name": "GPU share"})]
