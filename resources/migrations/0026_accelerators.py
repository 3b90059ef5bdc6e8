"""Kinds of accelerators: of each device, and of the groups whose hosts lend them. All known ones are NVIDIA's."""

from django.db import migrations, models

import resources.models.machines


class Migration(migrations.Migration):
    dependencies = [("resources", "0025_preset_gpu_memory")]

    operations = [
        migrations.AddField(
            model_name="gpu",
            name="kind",
            field=models.CharField(
                db_default="nvidia.com/gpu",
                default="nvidia.com/gpu",
                help_text="Vendor and class, such as amd.com/gpu",
                max_length=64,
            ),
        ),
        migrations.AddField(
            model_name="resourcegroup",
            name="accelerator",
            field=models.CharField(
                db_default="nvidia.com/gpu",
                default="nvidia.com/gpu",
                help_text="What its hosts lend, such as nvidia.com/gpu, amd.com/gpu or intel.com/gpu; what else they "
                "have is left out. Only those of NVIDIA can be lent in parts. It cannot change while hosts here lend "
                "some.",
                max_length=64,
                validators=[resources.models.machines.validate_kind],
                verbose_name="kind of accelerators",
            ),
        ),
    ]
