"""What users have used of resource groups, decayed: a trigger adds what a session used when it ends."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

WATCHED = {  # table: the columns on which a pass depends, before and from now on
    "resources_resourcegroup": (
        ("fgpu_per_gpu", "placement", "queue_order", "ageing", "reservation_delay", "is_active", "start_allowance"),
        ("half_life", "starvation_limit"),
    ),
    "accounts_resourcepolicy": (("cpu", "memory", "fgpu", "max_sessions", "max_lifetime"), ("share_weight",)),
    "accounts_user": (("policy_id",), ("share_weight",)),
}


def watch(table, columns):
    old, new = (", ".join(f"{row}.{name}" for name in columns) for row in ("OLD", "NEW"))
    return f"""
DROP TRIGGER note_update ON {table};
CREATE TRIGGER note_update AFTER UPDATE ON {table} FOR EACH ROW
    WHEN (({old}) IS DISTINCT FROM ({new})) EXECUTE FUNCTION compute_note_all();
"""


WATCH = "".join(watch(table, before + more) for table, (before, more) in WATCHED.items())
UNWATCH = "".join(watch(table, before) for table, (before, _) in WATCHED.items())

# A constant use over s seconds leaves half / ln 2 * (1 - 2^(-s / half)) of it. Exponents are bounded: beyond 1000 nothing
# is left, and power() would raise an error. The function writes as its owner: a host may end its sessions, no more.
CHARGE = """
CREATE FUNCTION compute_charge_use() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    pool bigint;
    half double precision;
    seconds double precision;
BEGIN
    SELECT host.group_id, extract(epoch FROM grp.half_life) INTO pool, half
    FROM resources_host host JOIN resources_resourcegroup grp ON grp.id = host.group_id WHERE host.id = NEW.host_id;
    IF pool IS NULL THEN
        RETURN NULL;
    END IF;
    seconds := greatest(extract(epoch FROM NEW.ended_at - NEW.started_at), 0);
    seconds := half / ln(2::double precision) * (1 - power(2, -least(seconds / half, 1000))) * NEW.charge_percent / 100;
    INSERT INTO compute_fairuse AS known (group_id, user_id, cpu_seconds, memory_byte_seconds, fgpu_milli_seconds, at)
    VALUES (pool, NEW.owner_id, seconds * NEW.cpu, seconds * NEW.memory, seconds * NEW.fgpu, NEW.ended_at)
    ON CONFLICT (user_id, group_id) DO UPDATE SET
        cpu_seconds = known.cpu_seconds * compute_decay(known.at, excluded.at, half)
            + excluded.cpu_seconds * compute_decay(excluded.at, known.at, half),
        memory_byte_seconds = known.memory_byte_seconds * compute_decay(known.at, excluded.at, half)
            + excluded.memory_byte_seconds * compute_decay(excluded.at, known.at, half),
        fgpu_milli_seconds = known.fgpu_milli_seconds * compute_decay(known.at, excluded.at, half)
            + excluded.fgpu_milli_seconds * compute_decay(excluded.at, known.at, half),
        at = greatest(known.at, excluded.at);
    RETURN NULL;
END $$;
CREATE TRIGGER charge_use AFTER UPDATE OF ended_at ON compute_session FOR EACH ROW
    WHEN (OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL AND NEW.started_at IS NOT NULL AND NEW.host_id IS NOT NULL)
    EXECUTE FUNCTION compute_charge_use();
"""
DECAY = """
-- Return what part of a use is left at a later moment; 1 at an earlier one.
CREATE FUNCTION compute_decay(since timestamptz, until timestamptz, half double precision) RETURNS double precision
LANGUAGE sql IMMUTABLE AS $$
    SELECT power(2, -least(greatest(extract(epoch FROM until - since), 0)::double precision / half, 1000))
$$;
"""
DROP = """
DROP FUNCTION compute_charge_use() CASCADE;
DROP FUNCTION compute_decay(timestamptz, timestamptz, double precision);
"""


class Migration(migrations.Migration):
    """Adds the column, the table and its trigger."""

    dependencies = [
        ("compute", "0014_refused_placements"),
        ("resources", "0011_fair_share"),
        ("accounts", "0007_share_weights"),
    ]
    operations = [
        migrations.AddField(
            model_name="session",
            name="charge_percent",
            field=models.PositiveSmallIntegerField(
                default=100, editable=False, help_text="Part of its use that counts in fair share"
            ),
        ),
        migrations.CreateModel(
            name='FairUse',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('cpu_seconds', models.FloatField(verbose_name='core seconds')),
                ('memory_byte_seconds', models.FloatField()),
                ('fgpu_milli_seconds', models.FloatField(verbose_name='milli-fGPU seconds')),
                ('at', models.DateTimeField()),
                ('group', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='fair_uses', to='resources.resourcegroup')),
                ('user', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='fair_uses', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('user', 'group'), name='fair_use_one_per_user_and_group')],
            },
        ),
        migrations.RunSQL(DECAY + CHARGE, DROP),
        migrations.RunSQL(WATCH, UNWATCH),
    ]
