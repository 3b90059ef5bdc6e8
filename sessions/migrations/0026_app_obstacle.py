"""Why nobody reaches an app that was opened: it listens on loopback alone, or has ended."""

from django.db import migrations, models

CHOICES = [("LOOPBACK", "listens on 127.0.0.1 only"), ("EXITED", "has ended")]


class Migration(migrations.Migration):
    dependencies = [("compute", "0025_cpu_overcommit")]

    operations = [
        migrations.AddField(
            model_name="endpoint",
            name="obstacle",
            field=models.CharField(blank=True, choices=CHOICES, db_default="", default="", max_length=8),
        )
    ]
