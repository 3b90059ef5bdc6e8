"""How much longer than their limits sessions may run."""

from datetime import timedelta

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds the limit to the policies; 0, as before."""

    dependencies = [("accounts", "0002_storage_and_image_limits")]
    operations = [
        migrations.AddField(
            model_name="resourcepolicy",
            name="max_extension",
            field=models.DurationField(
                default=timedelta(0),
                help_text=(
                    "Owners may let a running session go on for this much longer than its limits, in all; 0: not at all"
                ),
                validators=[django.core.validators.MinValueValidator(limit_value=timedelta(0))],
            ),
        )
    ]
