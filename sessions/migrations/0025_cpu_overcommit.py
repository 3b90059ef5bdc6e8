"""Sessions and leases store which part of each core is guaranteed; a host's leases add up to at most its cores by that.

Code of the version before writes neither column: its leases take whole cores, as they did.
"""

from importlib import import_module

from django.db import migrations, models

GUARDS_BEFORE = import_module("sessions.migrations.0002_capacity_guards").LEASES_WITHIN_HOST
GUARD_BEFORE = GUARDS_BEFORE.partition("CREATE TRIGGER")[0].replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
GUARD = GUARD_BEFORE.replace("sum(cpu) AS cpu", "sum(cpu::bigint * core_milli) AS cpu").replace(
    "leased.cpu > host.cpu", "leased.cpu > host.cpu::bigint * 1000"
)

# Fair share counts what is guaranteed, which is what others cannot have.
CHARGE_BEFORE = import_module("sessions.migrations.0022_fair_use_of_projects").CHARGE
CHARGE = CHARGE_BEFORE.replace("seconds * NEW.cpu", "seconds * NEW.cpu * NEW.core_milli / 1000")
RESIZE_BEFORE = import_module("sessions.migrations.0023_live_resize").CHARGE.replace(
    "CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"
)
RESIZE = RESIZE_BEFORE.replace("seconds * (OLD.cpu - NEW.cpu)", "seconds * (OLD.cpu - NEW.cpu) * OLD.core_milli / 1000")

NOTE = """
CREATE TRIGGER note_cpu_overcommit AFTER UPDATE OF cpu_overcommit ON resources_resourcegroup FOR EACH ROW
    WHEN (OLD.cpu_overcommit IS DISTINCT FROM NEW.cpu_overcommit) EXECUTE FUNCTION compute_note_all();
"""


class Migration(migrations.Migration):
    dependencies = [("compute", "0024_gpu_share_name"), ("resources", "0018_cpu_overcommit")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="core_milli",
            field=models.PositiveSmallIntegerField(
                db_default=1000,
                default=1000,
                editable=False,
                help_text="By its resource group, when it was last placed",
                verbose_name="guaranteed of each core (thousandths)",
            ),
        ),
        migrations.AddField(
            model_name="lease",
            name="core_milli",
            field=models.PositiveSmallIntegerField(
                db_default=1000, default=1000, verbose_name="guaranteed of each core (thousandths)"
            ),
        ),
        migrations.AddConstraint(
            model_name="lease",
            constraint=models.CheckConstraint(
                condition=models.Q(("core_milli__gte", 1), ("core_milli__lte", 1000)), name="lease_guarantees_cpu"
            ),
        ),
        migrations.RunSQL(GUARD, GUARD_BEFORE),
        migrations.RunSQL(CHARGE + RESIZE, CHARGE_BEFORE + RESIZE_BEFORE),
        migrations.RunSQL(NOTE, "DROP TRIGGER note_cpu_overcommit ON resources_resourcegroup"),
    ]
