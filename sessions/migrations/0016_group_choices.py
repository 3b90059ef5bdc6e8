"""Sessions that may start in several resource groups, and what their GPUs must be. The change log watches it all."""

import django.contrib.postgres.fields
from django.db import migrations, models

NOTE = """
CREATE TRIGGER note_group_waits AFTER UPDATE OF group_waits ON compute_session FOR EACH ROW
    WHEN (OLD.group_waits IS DISTINCT FROM NEW.group_waits) EXECUTE FUNCTION compute_note_extension();
DROP TRIGGER note_update ON resources_gpu;
CREATE TRIGGER note_update AFTER UPDATE ON resources_gpu FOR EACH ROW
    WHEN ((OLD.host_id, OLD.index, OLD.is_present, OLD.tier, OLD.name, OLD.memory)
        IS DISTINCT FROM (NEW.host_id, NEW.index, NEW.is_present, NEW.tier, NEW.name, NEW.memory))
    EXECUTE FUNCTION compute_note_all();
"""
FORGET = """
DROP TRIGGER note_update ON resources_gpu;
CREATE TRIGGER note_update AFTER UPDATE ON resources_gpu FOR EACH ROW
    WHEN ((OLD.host_id, OLD.index, OLD.is_present, OLD.tier) IS DISTINCT FROM (NEW.host_id, NEW.index, NEW.is_present, NEW.tier))
    EXECUTE FUNCTION compute_note_all();
DROP TRIGGER note_group_waits ON compute_session;
"""


class Migration(migrations.Migration):
    dependencies = [("compute", "0015_fair_use"), ("resources", "0013_image_gpu_memory")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="group_choices",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.BigIntegerField(),
                default=list,
                editable=False,
                help_text="Resource groups in which it may start, the preferred first; empty: its own alone",
                size=None,
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="group_waits",
            field=models.JSONField(
                default=dict, editable=False, help_text="Why it waits in each of several resource groups, by id"
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="gpu_model",
            field=models.CharField(
                blank=True,
                editable=False,
                help_text="Of all GPUs of its host; empty: any",
                max_length=96,
                verbose_name="GPU model",
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="min_gpu_memory",
            field=models.PositiveBigIntegerField(
                default=0,
                editable=False,
                help_text="That it gets on one GPU; 0: any",
                verbose_name="least GPU memory (bytes)",
            ),
        ),
        migrations.RunSQL(NOTE, FORGET),
    ]
