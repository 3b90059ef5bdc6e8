"""The grant guard: at commit, a hosted session has a lease on its host of exactly what it requests; others have none.

This implies that leases belong to existing sessions and hosts, and shares to existing leases and GPUs, so they have no
foreign keys: those would be checked row by row, which took a third of the time of a large scheduler pass.

The guard is deferred to the commit, because a pass writes sessions and leases in separate statements, and it checks
once per statement, because a pass moves thousands of sessions. Deferred triggers have no transition tables. So
statement triggers insert the ids of the sessions that they touch into compute_touched; a deferred trigger on that
table checks these sessions and deletes the rows, so that none is ever committed.
"""

from django.db import migrations

# Room on each page for the frequent updates of a waiting session's estimate, which then touch no index (HOT updates).
FILL_FACTOR = "ALTER TABLE compute_session SET (fillfactor = 70);"
FULL_PAGES = "ALTER TABLE compute_session RESET (fillfactor);"

TOUCHED_SESSIONS = """
CREATE UNLOGGED TABLE compute_touched (sessions varchar[] NOT NULL);
ALTER TABLE compute_touched ALTER sessions SET STORAGE EXTERNAL;  -- uncompressed: the rows are short-lived
"""

# The sessions of an array of ids, @IDS@, whose lease does not match: hosted without a lease, a lease or shares without
# a hosted session, or other amounts or another host than the session has.
MISMATCHED = """
    SELECT touched.id FROM unnest(@IDS@) AS touched (id)
    LEFT JOIN (SELECT * FROM compute_session WHERE id = ANY (@IDS@)) session ON session.id = touched.id
    LEFT JOIN (SELECT * FROM compute_lease WHERE session_id = ANY (@IDS@)) lease ON lease.session_id = touched.id
    LEFT JOIN (
        SELECT share.lease_id, sum(share.milli) AS milli, min(gpu.host_id) AS min_host, max(gpu.host_id) AS max_host
        FROM compute_gpushare share JOIN resources_gpu gpu ON gpu.id = share.gpu_id
        WHERE share.lease_id = ANY (@IDS@) GROUP BY share.lease_id
    ) granted ON granted.lease_id = touched.id
    WHERE coalesce(session.status IN ('SCHEDULED', 'PREPARING', 'RUNNING', 'TERMINATING'), false)
            <> (lease.session_id IS NOT NULL)
       OR lease.session_id IS NULL AND granted.lease_id IS NOT NULL
       OR lease.session_id IS NOT NULL AND (
           (session.host_id, session.cpu, session.memory, session.fgpu)
               IS DISTINCT FROM (lease.host_id, lease.cpu, lease.memory, coalesce(granted.milli, 0))
           OR granted.min_host <> lease.host_id OR granted.max_host <> lease.host_id)
    LIMIT 1
"""

FIND_MISMATCH = """
-- Return the id of one of these sessions whose lease does not match, or NULL.
CREATE FUNCTION compute_broken_grant(ids varchar[]) RETURNS varchar LANGUAGE plpgsql AS $$
BEGIN
    RETURN (@QUERY@);
END $$;
-- The same for many sessions: planned anew at each call, without nested loops even if the statistics are stale.
CREATE FUNCTION compute_broken_grant_of_many(ids varchar[]) RETURNS varchar LANGUAGE plpgsql
SET enable_nestloop = off AS $$
DECLARE
    broken varchar;
BEGIN
    EXECUTE $query$@QUERY@$query$ INTO broken USING ids;
    RETURN broken;
END $$;
""".replace("@QUERY@", MISMATCHED.replace("@IDS@", "ids"), 1).replace("@QUERY@", MISMATCHED.replace("@IDS@", "$1"), 1)

GRANT_IS_REQUEST = """
CREATE FUNCTION compute_guard_grants() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ids varchar[];
    broken varchar;
BEGIN
    -- Check all sessions touched by this transaction at once; its other rows of compute_touched then find none.
    WITH touched AS (DELETE FROM compute_touched RETURNING sessions)
    SELECT array_agg(id) INTO ids FROM (SELECT DISTINCT unnest(sessions) AS id FROM touched) AS ids_found;
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
"""

TOUCH_FUNCTIONS = """
CREATE FUNCTION compute_touch_new_sessions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO compute_touched SELECT array_agg(id) FROM new_rows HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE FUNCTION compute_touch_changed_sessions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO compute_touched SELECT array_agg(id) FROM (
        SELECT id, status, host_id, cpu, memory, fgpu FROM new_rows  -- no join: see 0002_capacity_guards
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
"""

TOUCH_TRIGGERS = """
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

FUNCTIONS = (
    "compute_guard_grants",
    "compute_broken_grant",
    "compute_broken_grant_of_many",
    "compute_touch_new_sessions",
    "compute_touch_changed_sessions",
    "compute_touch_old_sessions",
    "compute_touch_new_leases",
    "compute_touch_old_leases",
    "compute_touch_new_shares",
    "compute_touch_old_shares",
)
DROP_FUNCTIONS = f"DROP FUNCTION {', '.join(FUNCTIONS)} CASCADE"  # and their triggers


class Migration(migrations.Migration):
    """Adds the grant guard."""

    dependencies = [("compute", "0002_capacity_guards")]
    operations = [
        migrations.RunSQL(FILL_FACTOR, FULL_PAGES),
        migrations.RunSQL(TOUCHED_SESSIONS, "DROP TABLE compute_touched"),
        migrations.RunSQL(FIND_MISMATCH + GRANT_IS_REQUEST + TOUCH_FUNCTIONS + TOUCH_TRIGGERS, DROP_FUNCTIONS),
    ]
