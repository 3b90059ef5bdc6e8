from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("resources", "0028_gpu_weights")]

    operations = [
        migrations.AddField(
            model_name="gpu",
            name="problem",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Why its host lends it to nobody",
                max_length=200,
            ),
        ),
    ]
