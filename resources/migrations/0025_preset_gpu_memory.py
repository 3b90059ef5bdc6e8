from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("resources", "0024_gpu_measurements")]

    operations = [
        migrations.AddField(
            model_name="preset",
            name="gpu_memory",
            field=models.PositiveBigIntegerField(
                blank=True,
                db_default=0,
                default=0,
                help_text="In place of a share, which is then the least",
                verbose_name="GPU memory (bytes)",
            ),
        ),
    ]
