"""How many sessions a user may have parked, and for how long."""

import datetime
import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0010_audit_log'),
    ]

    operations = [
        migrations.AddField(
            model_name='resourcepolicy',
            name='max_parked',
            field=models.PositiveIntegerField(blank=True, default=3, help_text='At once; 0: sessions cannot be parked', null=True, verbose_name='parked sessions'),
        ),
        migrations.AddField(
            model_name='resourcepolicy',
            name='max_parked_time',
            field=models.DurationField(blank=True, default=datetime.timedelta(days=14), help_text='A parked session ends, and its files are deleted, this long after it was parked', null=True, validators=[django.core.validators.MinValueValidator(limit_value=datetime.timedelta(seconds=60))]),
        ),
    ]
