"""How close GPUs of a host are, and the least GPU memory that an image needs."""

import django.db.models.deletion
import django.db.models.expressions
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("resources", "0012_deny_private_networks")]

    operations = [
        migrations.AddField(
            model_name="image",
            name="min_gpu_memory",
            field=models.PositiveBigIntegerField(
                default=0, help_text="That a session gets on one GPU; 0: any", verbose_name="least GPU memory (bytes)"
            ),
        ),
        migrations.CreateModel(
            name="GpuLink",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "path",
                    models.CharField(
                        choices=[
                            ("NV", "NVLink"),
                            ("PIX", "one PCIe switch"),
                            ("PXB", "several PCIe switches"),
                            ("PHB", "the PCIe host bridge of a CPU"),
                            ("NODE", "one NUMA node"),
                            ("SYS", "the link between NUMA nodes"),
                        ],
                        help_text="What data between them passes, as nvidia-smi topo names it",
                        max_length=4,
                    ),
                ),
                (
                    "nvlinks",
                    models.PositiveSmallIntegerField(default=0, help_text="Between the two", verbose_name="NVLinks"),
                ),
                (
                    "gpu",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="links", to="resources.gpu"
                    ),
                ),
                (
                    "peer",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="resources.gpu",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("gpu", "peer"), name="gpu_link_once_per_pair"),
                    models.CheckConstraint(
                        condition=models.Q(("gpu__lt", models.F("peer"))), name="gpu_link_of_lower_to_higher_id"
                    ),
                ],
            },
        ),
    ]
