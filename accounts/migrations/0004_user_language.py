"""Add the language that a user has chosen."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("accounts", "0002_storage_and_image_limits")]

    operations = [
        migrations.AddField(
            model_name="user",
            name="language",
            field=models.CharField(blank=True, help_text="Of pages and mails; empty: the browser's", max_length=16),
        ),
    ]
