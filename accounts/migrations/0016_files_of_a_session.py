"""Policies may bound how many files a session makes outside of data folders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0015_demanded_second_factor"),
    ]

    operations = [
        migrations.AddField(
            model_name="resourcepolicy",
            name="disk_files",
            field=models.PositiveBigIntegerField(
                blank=True,
                help_text=(
                    "Files and directories made outside of data folders; beyond it none can be made, or the session ends"
                ),
                null=True,
                verbose_name="disk of a session (files)",
            ),
        ),
    ]
