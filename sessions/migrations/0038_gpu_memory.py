"""Sessions that ask for GPU memory in place of a share."""

from importlib import import_module
from typing import Final

from django.db import migrations, models
from django.db.models import Q

BEFORE: Final = (
    import_module("sessions.migrations.0023_live_resize")
    .FINISH.partition("REVOKE")[0]
    .replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
)
# A session that asked for GPU memory keeps it in memory: that of its new share.
FINISH: Final = BEFORE.replace(
    "fgpu = (amounts ->> 'fgpu')::integer\n",
    """fgpu = (amounts ->> 'fgpu')::integer,
        gpu_memory = CASE WHEN is_applied THEN coalesce((resize ->> 'gpu_memory')::bigint, gpu_memory)
            ELSE gpu_memory END,
        min_gpu_memory = CASE WHEN is_applied THEN coalesce((resize ->> 'gpu_memory')::bigint, min_gpu_memory)
            ELSE min_gpu_memory END,
        min_fgpu = least(min_fgpu, (amounts ->> 'fgpu')::integer)
""",
)


class Migration(migrations.Migration):
    dependencies = [("compute", "0037_previous_output")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="gpu_memory",
            field=models.PositiveBigIntegerField(
                db_default=0,
                default=0,
                editable=False,
                help_text="Asked for in place of a share, which follows from its GPU once it is placed; 0: it asks for a share",
                verbose_name="GPU memory (bytes)",
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="min_fgpu",
            field=models.PositiveIntegerField(
                db_default=0,
                default=0,
                editable=False,
                help_text="That it gets with this GPU memory",
                verbose_name="least milli-fGPU",
            ),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.CheckConstraint(
                condition=Q(gpu_memory=0, min_fgpu=0) | Q(gpu_memory__gt=0, fgpu__gt=0),
                name="session_gpu_memory_is_of_a_gpu",
            ),
        ),
        migrations.RunSQL(FINISH, BEFORE),
    ]
