"""Resource groups may bound how long sessions run."""

import datetime
import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('resources', '0015_preemption'),
    ]

    operations = [
        migrations.AddField(
            model_name='resourcegroup',
            name='max_lifetime',
            field=models.DurationField(blank=True, help_text="A session ends this long after it started running here, or earlier by its owner's policy; empty: by the policy alone", null=True, validators=[django.core.validators.MinValueValidator(limit_value=datetime.timedelta(seconds=60))]),
        ),
    ]
