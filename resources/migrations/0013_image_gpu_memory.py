"""The least GPU memory that an image needs."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("resources", "0012_deny_private_networks")]

    operations = [
        migrations.AddField(
            model_name="image",
            name="min_gpu_memory",
            field=models.PositiveBigIntegerField(
                default=0, help_text="That a session gets on one GPU; 0: any", verbose_name="least GPU memory (bytes)"
            ),
        ),
    ]
