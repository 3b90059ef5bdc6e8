"""Grant = request: at commit, a hosted session holds a lease on its host, of exactly what it asked for; others hold none.

So there is no lease without its session and host, no share without its lease and GPU, and no foreign keys say so again:
they would be checked row by row, which took a third of a large pass.

Judged once per statement, not once per row: a pass moves thousands of sessions at once. Transition tables are not to be
had at the commit, when the guard must judge; so every statement notes which sessions it has touched in a row of
compute_touched, and the deferred trigger on that row judges them and removes it: no such row is ever committed.
"""

from django.db import migrations

BROKEN = """
    SELECT touched.id FROM unnest({ids}) AS touched (id)
    LEFT JOIN (SELECT * FROM compute_session WHERE id = ANY ({ids})) session ON session.id = touched.id
    LEFT JOIN (SELECT * FROM compute_lease WHERE session_id = ANY ({ids})) lease ON lease.session_id = touched.id
    LEFT JOIN (
        SELECT share.lease_id, sum(share.milli) AS milli, min(gpu.host_id) AS host, max(gpu.host_id) AS other
        FROM compute_gpushare share JOIN resources_gpu gpu ON gpu.id = share.gpu_id
        WHERE share.lease_id = ANY ({ids}) GROUP BY share.lease_id
    ) held ON held.lease_id = touched.id
    WHERE coalesce(session.status IN ('SCHEDULED', 'PREPARING', 'RUNNING', 'TERMINATING'), false)
            <> (lease.session_id IS NOT NULL)
       OR lease.session_id IS NULL AND held.lease_id IS NOT NULL
       OR lease.session_id IS NOT NULL AND (
           (session.host_id, session.cpu, session.memory, session.fgpu)
               IS DISTINCT FROM (lease.host_id, lease.cpu, lease.memory, coalesce(held.milli, 0))
           OR held.host <> lease.host_id OR held.other <> lease.host_id)
    LIMIT 1
"""

SQL = """
ALTER TABLE compute_session SET (fillfactor = 70);  -- what a waiting session is told is written on its page

CREATE UNLOGGED TABLE compute_touched (sessions varchar[] NOT NULL);
ALTER TABLE compute_touched ALTER sessions SET STORAGE EXTERNAL;  -- nothing that lives so briefly is worth compressing

-- The first of these sessions that holds something else than it should.
CREATE FUNCTION compute_broken_grant(ids varchar[]) RETURNS varchar LANGUAGE plpgsql AS $$
BEGIN
    RETURN (@QUERY@);
END $$;
-- The same for many, planned anew each time: no loop of loops, even where the statistics are out of date.
CREATE FUNCTION compute_broken_grant_of_many(ids varchar[]) RETURNS varchar LANGUAGE plpgsql
SET enable_nestloop = off AS $$
DECLARE
    broken varchar;
BEGIN
    EXECUTE $query$@QUERY@$query$ INTO broken USING ids;
    RETURN broken;
END $$;

CREATE FUNCTION compute_guard_grants() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ids varchar[];
    broken varchar;
BEGIN
    -- All that this transaction has touched until now; for its other notes nothing is left to judge.
    WITH touched AS (DELETE FROM compute_touched RETURNING sessions)
    SELECT array_agg(id) INTO ids FROM (SELECT DISTINCT unnest(sessions) AS id FROM touched) AS found;
    IF cardinality(ids) < 50 THEN
        broken := compute_broken_grant(ids);
    ELSIF ids IS NOT NULL THEN
        broken := compute_broken_grant_of_many(ids);
    END IF;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION 'session % and its lease disagree', broken
            USING ERRCODE = 'check_violation', CONSTRAINT = 'grant_is_request';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER grant_is_request AFTER INSERT ON compute_touched
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION compute_guard_grants();

CREATE FUNCTION compute_touch_new_sessions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO compute_touched SELECT array_agg(id) FROM new_rows HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE FUNCTION compute_touch_changed_sessions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO compute_touched SELECT array_agg(id) FROM (
        SELECT id, status, host_id, cpu, memory, fgpu FROM new_rows  -- no join: see 0002
        EXCEPT SELECT id, status, host_id, cpu, memory, fgpu FROM old_rows
    ) AS changed HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE FUNCTION compute_touch_old_sessions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO compute_touched SELECT array_agg(id) FROM old_rows HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE FUNCTION compute_touch_new_leases() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO compute_touched SELECT array_agg(session_id) FROM new_rows HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE FUNCTION compute_touch_old_leases() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO compute_touched SELECT array_agg(session_id) FROM old_rows HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE FUNCTION compute_touch_new_shares() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO compute_touched SELECT array_agg(lease_id) FROM new_rows HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE FUNCTION compute_touch_old_shares() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO compute_touched SELECT array_agg(lease_id) FROM old_rows HAVING count(*) > 0;
    RETURN NULL;
END $$;

CREATE TRIGGER touch_insert AFTER INSERT ON compute_session
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_touch_new_sessions();
CREATE TRIGGER touch_update AFTER UPDATE ON compute_session
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION compute_touch_changed_sessions();
CREATE TRIGGER touch_delete AFTER DELETE ON compute_session
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_touch_old_sessions();
CREATE TRIGGER touch_insert AFTER INSERT ON compute_lease
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_touch_new_leases();
CREATE TRIGGER touch_update_new AFTER UPDATE ON compute_lease
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_touch_new_leases();
CREATE TRIGGER touch_update_old AFTER UPDATE ON compute_lease
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_touch_old_leases();
CREATE TRIGGER touch_delete AFTER DELETE ON compute_lease
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_touch_old_leases();
CREATE TRIGGER touch_insert AFTER INSERT ON compute_gpushare
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_touch_new_shares();
CREATE TRIGGER touch_update_new AFTER UPDATE ON compute_gpushare
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_touch_new_shares();
CREATE TRIGGER touch_update_old AFTER UPDATE ON compute_gpushare
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_touch_old_shares();
CREATE TRIGGER touch_delete AFTER DELETE ON compute_gpushare
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_touch_old_shares();
"""


class Migration(migrations.Migration):
    """Adds the guard of grants."""

    dependencies = [("compute", "0002_guards")]
    operations = [
        migrations.RunSQL(
            SQL.replace("@QUERY@", BROKEN.format(ids="ids"), 1).replace("@QUERY@", BROKEN.format(ids="$1"), 1)
        )
    ]
