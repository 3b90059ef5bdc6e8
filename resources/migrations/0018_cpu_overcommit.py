"""Resource groups may overcommit the CPU of their hosts."""

from decimal import Decimal

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("resources", "0017_host_gpu_topology")]

    operations = [
        migrations.AddField(
            model_name="resourcegroup",
            name="cpu_overcommit",
            field=models.DecimalField(
                db_default=Decimal("1"),
                decimal_places=2,
                default=Decimal("1"),
                help_text="Hosts take sessions for this many times their CPU cores. Each is guaranteed its cores divided by "
                "the factor, and may use all of them while others leave theirs idle. Memory and GPUs are never overcommitted. "
                "Sessions keep the factor with which they were placed.",
                max_digits=4,
                validators=[
                    django.core.validators.MinValueValidator(Decimal("1")),
                    django.core.validators.MaxValueValidator(Decimal("32")),
                ],
                verbose_name="CPU overcommit factor",
            ),
        ),
        migrations.AddConstraint(
            model_name="resourcegroup",
            constraint=models.CheckConstraint(
                condition=models.Q(("cpu_overcommit__gte", 1), ("cpu_overcommit__lte", 32)),
                name="group_overcommits_cpu_within_bounds",
            ),
        ),
    ]
