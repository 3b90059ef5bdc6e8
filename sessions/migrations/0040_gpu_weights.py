"""Sessions keep the weight with which their GPUs count in fair share and usage, also from before they were placed anew.

Code of the version before writes no weight: what it places counts 1, or as it did when it was placed last.
"""

from importlib import import_module

from django.db import migrations, models

OVERCOMMIT = import_module("sessions.migrations.0025_cpu_overcommit")
# The weight belongs to the amount: with a weight of 1 the product with the seconds is the same to the bit.
CHARGE = OVERCOMMIT.CHARGE.replace("seconds * NEW.fgpu", "seconds * (NEW.fgpu::bigint * NEW.gpu_weight_milli / 1000::float8)")
RESIZE = OVERCOMMIT.RESIZE.replace(
    "seconds * (OLD.fgpu - NEW.fgpu)", "seconds * ((OLD.fgpu - NEW.fgpu)::bigint * OLD.gpu_weight_milli / 1000::float8)"
)

RECORD_BEFORE = import_module("sessions.migrations.0023_live_resize").RECORD
RECORD = (
    RECORD_BEFORE.replace("memory, fgpu)\n", "memory, fgpu, gpu_weight_milli)\n")
    .replace("OLD.fgpu);", "OLD.fgpu, OLD.gpu_weight_milli);")
    .replace(
        "NEW.fgpu))\n",
        "NEW.fgpu)\n"
        "          OR OLD.status = 'PENDING' AND NEW.status = 'SCHEDULED' AND OLD.attempt > 0\n"
        "          AND (OLD.fgpu, OLD.gpu_weight_milli) IS DISTINCT FROM (NEW.fgpu, NEW.gpu_weight_milli))\n",
    )
)
DROP_RECORD = "DROP FUNCTION compute_record_size() CASCADE;"

NOTE = """
CREATE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON resources_gpuweight
    FOR EACH STATEMENT EXECUTE FUNCTION compute_note_all();
"""


class Migration(migrations.Migration):
    dependencies = [("compute", "0039_start_estimates"), ("resources", "0028_gpu_weights")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="gpu_weight_milli",
            field=models.PositiveIntegerField(
                db_default=1000,
                default=1000,
                editable=False,
                help_text="Of their models, the mean over what it holds, when it was last placed",
                verbose_name="weight of its GPUs (thousandths)",
            ),
        ),
        migrations.AddField(
            model_name="pastsize",
            name="gpu_weight_milli",
            field=models.PositiveIntegerField(db_default=1000, verbose_name="weight of its GPUs (thousandths)"),
        ),
        migrations.RunSQL(DROP_RECORD + RECORD, DROP_RECORD + RECORD_BEFORE),
        migrations.RunSQL(CHARGE + RESIZE, OVERCOMMIT.CHARGE + OVERCOMMIT.RESIZE),
        migrations.RunSQL(NOTE, "DROP TRIGGER note_change ON resources_gpuweight"),
    ]
