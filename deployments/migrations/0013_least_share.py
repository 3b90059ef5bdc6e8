from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("deployments", "0012_gpu_memory")]

    operations = [
        migrations.AddField(
            model_name="revision",
            name="min_fgpu",
            field=models.PositiveIntegerField(
                db_default=0,
                default=0,
                editable=False,
                help_text="With GPU memory: the least that a replica gets",
                verbose_name="least milli-fGPU",
            ),
        ),
    ]
