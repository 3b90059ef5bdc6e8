from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("deployments", "0011_usage_without_token")]

    operations = [
        migrations.AddField(
            model_name="revision",
            name="gpu_memory",
            field=models.PositiveBigIntegerField(
                db_default=0,
                default=0,
                editable=False,
                help_text="In place of a share: the least of that",
                verbose_name="GPU memory (bytes)",
            ),
        ),
    ]
