import datetime
import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("resources", "0014_grants_to_projects"),
    ]

    operations = [
        migrations.AddField(
            model_name="resourcegroup",
            name="end_gpu_overuse",
            field=models.BooleanField(default=False, help_text="Sessions that take more of a GPU's time than their share for half a minute are ended; otherwise it is noted and superadmins are told. What drivers say of GPU time is coarse: watch it on your cards first.", verbose_name="end sessions above their GPU time"),
        ),
        migrations.AddField(
            model_name="resourcegroup",
            name="preemptible_charge_percent",
            field=models.PositiveSmallIntegerField(default=50, help_text="In fair order: part of their use that counts", validators=[django.core.validators.MaxValueValidator(100)], verbose_name="charge of preemptible sessions (%)"),
        ),
        migrations.AddField(
            model_name="resourcegroup",
            name="preemption_grace",
            field=models.DurationField(default=datetime.timedelta(seconds=120), help_text="How long before its end a preemptible session is warned that it is ended for another", validators=[django.core.validators.MinValueValidator(limit_value=datetime.timedelta(0))]),
        ),
    ]
