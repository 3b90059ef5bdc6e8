"""What a scheduler, or an estimate, must read again: every statement notes the sessions that it has changed.

A row holds the sessions, or NULL where anything may be different: hosts, GPUs, groups, policies. `xid` is the writing
transaction, so that a reader that comes back with the oldest transaction that was still open misses no commit, in
whatever order they come. The scheduler removes rows that are too old for every reader. Leases are not watched: the
guard of grants has them follow the sessions.
"""

from django.conf import settings
from django.db import migrations, models
from django.db.models import deletion

SESSION = ", ".join(
    (
        *("id", "status", "status_at", "started_at", "owner_id", "resource_group_id", "host_id", "avoided_host_id"),
        *("cpu", "memory", "fgpu", "priority", "created_at", "not_before", "time_limit"),
        *("reason", "detail", "eta", "eta_reason"),  # another scheduler may have written them
    )
)
WATCHED = {  # table: the columns on which a pass depends
    "resources_host": ("name", "group_id", "status", "is_cordoned", "cpu", "memory"),
    "resources_gpu": ("host_id", "index", "is_present", "tier"),
    "resources_resourcegroup": ("fgpu_per_gpu", "placement", "queue_order", "ageing", "reservation_delay", "is_active"),
    "accounts_resourcepolicy": ("cpu", "memory", "fgpu", "max_sessions", "max_lifetime"),
    "accounts_user": ("policy_id",),
}

SQL = f"""
CREATE TABLE compute_change (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    sessions varchar[]
);
ALTER TABLE compute_change ALTER sessions SET STORAGE EXTERNAL;  -- ids are random: compressing them only costs time
CREATE INDEX compute_change_xid ON compute_change (xid);

-- For LIKE in another collation; nobody looks for ids like others.
DROP INDEX compute_session_id_a5de01f0_like, compute_lease_session_id_2649125e_like;

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
        SELECT {SESSION} FROM new_rows EXCEPT SELECT {SESSION} FROM old_rows  -- no join: see 0002
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
""" + "".join(
    f"""
CREATE TRIGGER note_update AFTER UPDATE ON {table} FOR EACH ROW
    WHEN (({", ".join(f"OLD.{name}" for name in names)}) IS DISTINCT FROM ({", ".join(f"NEW.{name}" for name in names)}))
    EXECUTE FUNCTION compute_note_all();
"""
    for table, names in WATCHED.items()
) + "".join(
    f"""
CREATE TRIGGER note_insert_or_delete AFTER INSERT OR DELETE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION compute_note_all();
"""
    for table in ("resources_host", "resources_gpu", "resources_resourcegroup")
)

PROTECT = {"on_delete": deletion.PROTECT}
OPTIONAL = {"blank": True, "null": True, "editable": False, "to": "resources.host"}
FOREIGN_KEYS = {
    "owner": {"to": settings.AUTH_USER_MODEL, "related_name": "compute_sessions", **PROTECT},
    "image": {"to": "resources.image", "related_name": "sessions", **PROTECT},
    "resource_group": {"to": "resources.resourcegroup", "related_name": "sessions", **PROTECT},
    "host": {"related_name": "sessions", **PROTECT, **OPTIONAL},
    "avoided_host": {"related_name": "+", "on_delete": deletion.SET_NULL, **OPTIONAL},
}


class Migration(migrations.Migration):
    """Adds the notes of changes, and takes away indexes that only cost time whenever a session moves."""

    dependencies = [("compute", "0004_apps"), ("resources", "0002_apps"), ("accounts", "0001_initial")]
    operations = [
        migrations.RunSQL(SQL),
        *(
            migrations.AlterField("session", name, models.ForeignKey(db_index=False, **its))
            for name, its in FOREIGN_KEYS.items()
        ),
    ]
