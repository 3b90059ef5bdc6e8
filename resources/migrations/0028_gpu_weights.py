"""What an hour on a GPU of each model counts."""

import django.core.validators
from decimal import Decimal
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('resources', '0027_two_kinds_of_packing'),
    ]

    operations = [
        migrations.CreateModel(
            name='GpuWeight',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('model', models.CharField(help_text='As hosts report it, letter by letter', max_length=96, unique=True, verbose_name='GPU model')),
                ('weight', models.DecimalField(decimal_places=2, help_text='An hour on a whole GPU of this model counts as this many GPU hours in fair share and weighted usage. Other models count 1. Sessions keep the weight with which they were placed. Limits still count GPUs.', max_digits=5, validators=[django.core.validators.MinValueValidator(Decimal('0.01')), django.core.validators.MaxValueValidator(Decimal('100'))])),
            ],
            options={
                'verbose_name': 'GPU weight',
                'ordering': ('model',),
                'constraints': [models.CheckConstraint(condition=models.Q(('weight__gte', Decimal('0.01')), ('weight__lte', Decimal('100'))), name='gpu_weight_within_bounds')],
            },
        ),
    ]
