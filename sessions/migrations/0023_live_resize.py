"""Live resize: what a running session's host is to change it to, and a record of what it held before.

`resize` is {"id": ..., "at": ..., "from": amounts, "to": amounts}. While it is set, the session holds the greater of each
amount, so that nothing is promised twice, and nothing is lost whatever dies.
"""

from importlib import import_module

import django.db.models.deletion
from django.db import migrations, models

# What a session held until now, for reports; by any statement that changes the amounts of one that has a container.
RECORD = """
CREATE FUNCTION compute_record_size() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO compute_pastsize (session_id, until, cpu, memory, fgpu)
    VALUES (OLD.id, clock_timestamp(), OLD.cpu, OLD.memory, OLD.fgpu);
    RETURN NULL;
END $$;
CREATE TRIGGER record_size AFTER UPDATE ON compute_session FOR EACH ROW
    WHEN (OLD.status IN ('RUNNING', 'TERMINATING')
          AND (OLD.cpu, OLD.memory, OLD.fgpu) IS DISTINCT FROM (NEW.cpu, NEW.memory, NEW.fgpu))
    EXECUTE FUNCTION compute_record_size();
"""
DROP_RECORD = "DROP FUNCTION compute_record_size() CASCADE"

# Fair share: the end of a session charges what it holds by then, from its start on. A resize charges the difference to what
# it held before, from the start until now; that may be negative, but never both together.
CHARGE = (
    import_module("sessions.migrations.0022_fair_use_of_projects")
    .CHARGE.replace("CREATE OR REPLACE FUNCTION compute_charge_use", "CREATE FUNCTION compute_charge_resize")
    .replace("coalesce(NEW.host_id, OLD.host_id)", "OLD.host_id")
    .replace("coalesce(NEW.started_at, OLD.started_at)", "OLD.started_at")
    .replace("coalesce(NEW.ended_at, NEW.status_at)", "clock_timestamp()")
    .replace("seconds * NEW.cpu", "seconds * (OLD.cpu - NEW.cpu)")
    .replace("seconds * NEW.memory", "seconds * (OLD.memory - NEW.memory)")
    .replace("seconds * NEW.fgpu", "seconds * (OLD.fgpu - NEW.fgpu)")
)
CHARGE_RESIZED = """
CREATE TRIGGER charge_resized AFTER UPDATE ON compute_session FOR EACH ROW
    WHEN (OLD.status IN ('RUNNING', 'TERMINATING') AND OLD.started_at IS NOT NULL
          AND (OLD.cpu, OLD.memory, OLD.fgpu) IS DISTINCT FROM (NEW.cpu, NEW.memory, NEW.fgpu))
    EXECUTE FUNCTION compute_charge_resize();
"""
DROP_CHARGE = "DROP FUNCTION compute_charge_resize() CASCADE"

# A session that leaves its host is resized no more; one that will start again does so with what it had before.
END = """
CREATE FUNCTION compute_end_resize() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.status IN ('PENDING', 'PARKED') THEN
        NEW.cpu := (OLD.resize -> 'from' ->> 'cpu')::integer;
        NEW.memory := (OLD.resize -> 'from' ->> 'memory')::bigint;
        NEW.fgpu := (OLD.resize -> 'from' ->> 'fgpu')::integer;
    END IF;
    NEW.resize := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER end_resize BEFORE UPDATE OF status ON compute_session FOR EACH ROW
    WHEN (OLD.resize IS NOT NULL AND NEW.status NOT IN ('RUNNING', 'TERMINATING'))
    EXECUTE FUNCTION compute_end_resize();
"""
DROP_END = "DROP FUNCTION compute_end_resize() CASCADE"

# The end of a resize: session, lease and share get the amounts asked for, or those before. Hosts may call it for their
# own sessions, and so can write no other amounts.
FINISH = """
CREATE FUNCTION compute_finish_resize(resized varchar, number varchar, is_applied boolean) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    amounts jsonb;
    held integer;
BEGIN
    SELECT session.resize -> CASE WHEN is_applied THEN 'to' ELSE 'from' END, session.fgpu INTO amounts, held
    FROM compute_session session
    WHERE session.id = resized AND session.status = 'RUNNING' AND session.resize ->> 'id' = number
        AND session.host_id = coalesce(hostaccess_host(), session.host_id)
    FOR NO KEY UPDATE;
    IF amounts IS NULL THEN
        RETURN false;
    END IF;
    UPDATE compute_session SET resize = NULL, cpu = (amounts ->> 'cpu')::integer,
        memory = (amounts ->> 'memory')::bigint, fgpu = (amounts ->> 'fgpu')::integer
    WHERE id = resized;
    UPDATE compute_lease SET cpu = (amounts ->> 'cpu')::integer, memory = (amounts ->> 'memory')::bigint
    WHERE session_id = resized;
    IF (amounts ->> 'fgpu')::integer <> held THEN  -- of a part of one GPU: others are not resized
        UPDATE compute_gpushare SET milli = (amounts ->> 'fgpu')::integer WHERE lease_id = resized;
    END IF;
    RETURN true;
END $$;
REVOKE EXECUTE ON FUNCTION compute_finish_resize(varchar, varchar, boolean) FROM PUBLIC;
"""
DROP_FINISH = "DROP FUNCTION compute_finish_resize(varchar, varchar, boolean)"


class Migration(migrations.Migration):
    dependencies = [("compute", "0022_fair_use_of_projects"), ("hostaccess", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="resize",
            field=models.JSONField(
                blank=True,
                editable=False,
                help_text="What its host is to change these amounts to, while it runs",
                null=True,
            ),
        ),
        migrations.CreateModel(
            name="PastSize",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("until", models.DateTimeField()),
                ("cpu", models.PositiveIntegerField(verbose_name="CPU cores")),
                ("memory", models.PositiveBigIntegerField(verbose_name="memory (bytes)")),
                ("fgpu", models.PositiveIntegerField(verbose_name="milli-fGPU")),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="past_sizes",
                        to="compute.session",
                    ),
                ),
            ],
            options={
                "ordering": ("until", "id"),
                "indexes": [models.Index(fields=["session", "until"], name="past_size_of_session")],
            },
        ),
        migrations.RunSQL(RECORD, DROP_RECORD),
        migrations.RunSQL(CHARGE + CHARGE_RESIZED, DROP_CHARGE),
        migrations.RunSQL(END, DROP_END),
        migrations.RunSQL(FINISH, DROP_FINISH),
    ]
