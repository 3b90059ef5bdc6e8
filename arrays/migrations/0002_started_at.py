"""When the first task of an array started, as sessions that wait for it ask."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("arrays", "0001_initial")]
    operations = [
        migrations.AddField(
            model_name="array",
            name="started_at",
            field=models.DateTimeField(editable=False, help_text="When its first task started", null=True),
        ),
    ]
