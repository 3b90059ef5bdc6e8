"""The change log: triggers that record which sessions each statement changes, for schedulers that keep their state.

A row of compute_change holds the ids of sessions, or NULL where any state may have changed: hosts, GPUs, groups,
policies. `xid` is the writing transaction. A reader continues from the oldest transaction that was open at its last
read, so that it misses no commit, whatever their order. The scheduler deletes rows that no reader needs any more
(`scheduler/snapshot/queue.py`). Leases are not logged: by the grant guard they follow the sessions.
"""

from django.db import migrations

SESSION_COLUMNS = ", ".join(
    (
        *("id", "status", "status_at", "started_at", "owner_id", "resource_group_id", "host_id", "avoided_host_id"),
        *("cpu", "memory", "fgpu", "priority", "created_at", "not_before", "time_limit"),
        *("reason", "detail", "eta", "eta_reason"),  # written by the scheduler; another may run
    )
)
WATCHED_COLUMNS = {  # table: the columns on which a pass depends
    "resources_host": ("name", "group_id", "status", "is_cordoned", "cpu", "memory"),
    "resources_gpu": ("host_id", "index", "is_present", "tier"),
    "resources_resourcegroup": ("fgpu_per_gpu", "placement", "queue_order", "ageing", "reservation_delay", "is_active"),
    "accounts_resourcepolicy": ("cpu", "memory", "fgpu", "max_sessions", "max_lifetime"),
    "accounts_user": ("policy_id",),
}

CHANGE_TABLE = """
CREATE TABLE compute_change (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    sessions varchar[]
);
ALTER TABLE compute_change ALTER sessions SET STORAGE EXTERNAL;  -- uncompressed: ids are random
CREATE INDEX compute_change_xid ON compute_change (xid);
"""

# Indexes for LIKE in another collation, which no query uses and every move of a session would update.
DROP_LIKE_INDEXES = "DROP INDEX compute_session_id_a5de01f0_like, compute_lease_session_id_2649125e_like;"
CREATE_LIKE_INDEXES = """
CREATE INDEX compute_session_id_a5de01f0_like ON compute_session (id varchar_pattern_ops);
CREATE INDEX compute_lease_session_id_2649125e_like ON compute_lease (session_id varchar_pattern_ops);
"""

LOG_FUNCTIONS = """
CREATE FUNCTION compute_note_new_sessions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO compute_change (sessions) SELECT array_agg(id) FROM new_rows HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE FUNCTION compute_note_old_sessions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO compute_change (sessions) SELECT array_agg(id) FROM old_rows HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE FUNCTION compute_note_changed_sessions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO compute_change (sessions) SELECT array_agg(id) FROM (
        SELECT @COLUMNS@ FROM new_rows EXCEPT SELECT @COLUMNS@ FROM old_rows  -- no join: see 0002_capacity_guards
    ) AS changed HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE FUNCTION compute_note_new_links() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO compute_change (sessions) SELECT array_agg(from_session_id) FROM new_rows HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE FUNCTION compute_note_old_links() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO compute_change (sessions) SELECT array_agg(from_session_id) FROM old_rows HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE FUNCTION compute_note_all() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO compute_change (sessions) VALUES (NULL);
    RETURN NULL;
END $$;
""".replace("@COLUMNS@", SESSION_COLUMNS)

SESSION_TRIGGERS = """
CREATE TRIGGER note_insert AFTER INSERT ON compute_session
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_note_new_sessions();
CREATE TRIGGER note_update AFTER UPDATE ON compute_session
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION compute_note_changed_sessions();
CREATE TRIGGER note_delete AFTER DELETE ON compute_session
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_note_old_sessions();
CREATE TRIGGER note_truncate AFTER TRUNCATE ON compute_session
    FOR EACH STATEMENT EXECUTE FUNCTION compute_note_all();
CREATE TRIGGER note_insert AFTER INSERT ON compute_session_depends_on
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_note_new_links();
CREATE TRIGGER note_delete AFTER DELETE ON compute_session_depends_on
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION compute_note_old_links();
"""

UPDATE_TRIGGERS = "".join(
    f"""
CREATE TRIGGER note_update AFTER UPDATE ON {table} FOR EACH ROW
    WHEN (({", ".join(f"OLD.{name}" for name in names)}) IS DISTINCT FROM ({", ".join(f"NEW.{name}" for name in names)}))
    EXECUTE FUNCTION compute_note_all();
"""
    for table, names in WATCHED_COLUMNS.items()
)

INSERT_AND_DELETE_TRIGGERS = "".join(
    f"""
CREATE TRIGGER note_insert_or_delete AFTER INSERT OR DELETE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION compute_note_all();
"""
    for table in ("resources_host", "resources_gpu", "resources_resourcegroup")
)

FUNCTIONS = (
    "compute_note_new_sessions",
    "compute_note_old_sessions",
    "compute_note_changed_sessions",
    "compute_note_new_links",
    "compute_note_old_links",
    "compute_note_all",
)
DROP_FUNCTIONS = f"DROP FUNCTION {', '.join(FUNCTIONS)} CASCADE"  # and their triggers
TRIGGERS = SESSION_TRIGGERS + UPDATE_TRIGGERS + INSERT_AND_DELETE_TRIGGERS


class Migration(migrations.Migration):
    """Adds the change log."""

    dependencies = [("compute", "0003_grant_guard"), ("resources", "0001_initial"), ("accounts", "0001_initial")]
    operations = [
        migrations.RunSQL(CHANGE_TABLE, "DROP TABLE compute_change"),
        migrations.RunSQL(DROP_LIKE_INDEXES, CREATE_LIKE_INDEXES),
        migrations.RunSQL(LOG_FUNCTIONS + TRIGGERS, DROP_FUNCTIONS),
    ]
