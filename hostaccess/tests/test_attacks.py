"""With all that a GPU host has, what is others' cannot be read or written."""

import json
from typing import Any

import psycopg
import pytest
from django.db import connection
from psycopg.errors import InsufficientPrivilege

from accounts.models import ApiToken, AuditEntry
from hostaccess import roles, services
from hostaccess.grants import GRANTS
from resources import versions
from resources.models import Gpu, Host
from sessions.lifecycle import Reason, Status
from sessions.models import Session
from tests.factories import make_endpoint, make_folder, make_host, make_image, make_session, make_user, run_session
from tests.joined_hosts import connected, joined_host

NO_TIMES = ("'infinity'", "'-infinity'", "'9999-12-31'", "'1999-12-31'")
HIDDEN_TABLES = """
    SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
    AND NOT has_any_column_privilege(current_user, oid, 'SELECT')
"""


def rows(host: psycopg.Connection[Any], statement: str, *parameters: object) -> list[Any]:
    return host.execute(statement.encode(), parameters).fetchall()


def changed(host: psycopg.Connection[Any], statement: str, *parameters: object) -> int:
    return host.execute(statement.encode(), parameters).rowcount


def refused(host: psycopg.Connection[Any], statement: str, *parameters: object) -> None:
    with pytest.raises(InsufficientPrivilege):
        host.execute(statement.encode(), parameters)


@pytest.fixture
def others() -> Session:
    """A session of another user on another host, with an app."""
    session = run_session(host=make_host(name="gpu8", gpus=1), owner=make_user(), fgpu=1000)
    make_endpoint(session, token="secret")
    return session


def test_secrets_of_users_cannot_be_read(own: Session, host_connection: psycopg.Connection[Any]) -> None:
    ApiToken.objects.issue(own.owner)
    refused(host_connection, "SELECT password FROM accounts_user")
    refused(host_connection, "SELECT * FROM accounts_user")
    refused(host_connection, "UPDATE accounts_user SET is_superuser = true")
    hidden = {table for (table,) in rows(host_connection, HIDDEN_TABLES)}
    secret = {"accounts_apitoken", "accounts_loginsession", "accounts_sshkey", "django_session", "compute_ticket"}
    assert secret | {"compute_sharelink", "compute_revocation", "hostaccess_hostaccess"} <= hidden
    assert {"webhooks_webhook", "webhooks_webhookdelivery"} <= hidden
    for table in sorted(hidden):
        refused(host_connection, f"SELECT * FROM {table}")
        refused(host_connection, f"DELETE FROM {table}")
    assert rows(host_connection, "SELECT id FROM accounts_user") == [(own.owner_id,)]


def test_rows_of_other_hosts_are_out_of_reach(
    own: Session, others: Session, host_connection: psycopg.Connection[Any]
) -> None:
    assert rows(host_connection, "SELECT id FROM compute_session") == [(own.pk,)]
    assert rows(host_connection, "SELECT name FROM resources_host") == [("gpu7",)]
    for table in ("compute_endpoint", "compute_mount", "compute_conversion", "compute_sessionusage"):
        assert rows(host_connection, f"SELECT id FROM {table}") == []
    assert rows(host_connection, "SELECT session_id FROM compute_lease") == [(own.pk,)]
    assert rows(host_connection, "SELECT DISTINCT session_id FROM compute_sessionevent") == [(own.pk,)]
    assert changed(host_connection, "UPDATE compute_session SET detail = 'x' WHERE id = %s", others.pk) == 0
    assert changed(host_connection, "UPDATE resources_host SET status = 'LOST' WHERE name = 'gpu8'") == 0
    assert changed(host_connection, "DELETE FROM compute_lease WHERE session_id = %s", others.pk) == 0
    event = (
        "INSERT INTO compute_sessionevent (session_id, at, old_status, new_status, reason, detail)"
        " VALUES (%s, now(), '', '', '', '')"
    )
    assert changed(host_connection, event, own.pk) == 1
    refused(host_connection, event, others.pk)
    usage = "INSERT INTO compute_sessionusage (session_id, at) VALUES (%s, now())"
    refused(host_connection, usage, others.pk)


def test_a_host_cannot_take_what_is_not_its_own(
    own: Session, others: Session, host_connection: psycopg.Connection[Any]
) -> None:
    theirs, image = Host.objects.get(name="gpu8"), make_image(owner=None)
    refused(host_connection, "UPDATE compute_session SET host_id = %s", theirs.pk)
    for change in ("allow_sudo = true", "owner_id = 1", "environment = '{}'", "priority = 99", "command = 'x'"):
        refused(host_connection, f"UPDATE compute_session SET {change}")
    for change in ("name = 'gpu8'", "group_id = 1"):
        refused(host_connection, f"UPDATE resources_host SET {change}")
    refused(
        host_connection,
        'INSERT INTO resources_host SELECT (jsonb_populate_record(h, \'{"id": 99999, "name": "gpu9"}\')).*'
        " FROM resources_host h",
    )
    refused(host_connection, "INSERT INTO compute_session SELECT * FROM compute_session")
    assert changed(host_connection, "UPDATE resources_image SET reference = 'evil' WHERE id = %s", image.pk) == 0
    assert changed(host_connection, "UPDATE resources_gpu SET is_present = false WHERE host_id = %s", theirs.pk) == 0
    refused(host_connection, "SET ROLE postgres")
    refused(host_connection, "SELECT pg_read_file('/etc/passwd')")
    refused(host_connection, "CREATE TABLE mine (id int)")
    assert rows(host_connection, "SELECT hostaccess_name()") == [("gpu7",)]


def test_a_host_cannot_put_off_its_drain(own: Session, host_connection: psycopg.Connection[Any]) -> None:
    Host.objects.filter(name="gpu7").update(is_cordoned=True, drain_by="2030-01-02T00:00Z")
    for later in ("NULL", "'2030-01-03T00:00Z'"):
        refused(host_connection, f"UPDATE resources_host SET drain_by = {later}")
    assert changed(host_connection, "UPDATE resources_host SET drain_by = '2030-01-01T00:00Z'") == 1
    Host.objects.filter(name="gpu7").update(is_cordoned=False, drain_by=None)  # as an administrator takes it back


def test_a_host_ends_its_sessions_under_the_guards(own: Session, host_connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):  # with its lease left behind
        host_connection.execute(
            "UPDATE compute_session SET status = 'TERMINATED', ended_at = now(), result = 'SUCCESS' WHERE id = %s",
            [own.pk],
        )
    with host_connection.transaction():
        host_connection.execute("UPDATE compute_session SET status = 'ERROR', ended_at = now() WHERE id = %s", [own.pk])
        host_connection.execute("DELETE FROM compute_gpushare WHERE lease_id = %s", [own.pk])
        host_connection.execute("DELETE FROM compute_lease WHERE session_id = %s", [own.pk])
    own.refresh_from_db()
    assert own.status == Status.ERROR
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM compute_change WHERE %s = ANY (sessions)", [own.pk])
        assert cursor.fetchone()[0] > 0, "and the scheduler learns of it"


def test_a_host_gives_back_what_it_cannot_start(own: Session, host_connection: psycopg.Connection[Any]) -> None:
    with host_connection.transaction():
        changes = "status = 'PENDING', host_id = NULL, avoided_hosts = ARRAY[host_id], container_id = ''"
        assert changed(host_connection, f"UPDATE compute_session SET {changes} WHERE id = %s", own.pk) == 1
        host_connection.execute("DELETE FROM compute_gpushare WHERE lease_id = %s", [own.pk])
        host_connection.execute("DELETE FROM compute_lease WHERE session_id = %s", [own.pk])
        host_connection.execute(
            "INSERT INTO compute_sessionevent (session_id, at, old_status, new_status, reason, detail)"
            " VALUES (%s, now(), 'PREPARING', 'PENDING', 'HOST_FAULT', '')",
            [own.pk],
        )
    own.refresh_from_db()
    assert (own.status, own.host_id) == (Status.PENDING, None)
    refused(host_connection, "UPDATE compute_session SET avoided_hosts = '{}' WHERE id = %s", own.pk)


def test_folders_of_other_storage_are_out_of_reach(own: Session, host_connection: psycopg.Connection[Any]) -> None:
    folder = make_folder()
    assert rows(host_connection, "SELECT id FROM folders_folder") == []
    host_connection.execute(
        "INSERT INTO folders_hostroot (host_id, root_id, is_present, problem, quota_support, checked_at)"
        " VALUES (%s, %s, true, '', 'watched', now())",
        [own.host_id, folder.root_id],
    )
    assert rows(host_connection, "SELECT id FROM folders_folder") == [(folder.pk,)]
    refused(host_connection, "DELETE FROM folders_folder")
    host_connection.execute("SELECT folders_forget_folder(%s)", [folder.pk])  # which is not being deleted
    folder.refresh_from_db()


def test_revoked_credentials_are_worth_nothing(transactional_db: None) -> None:
    with joined_host("gone") as variables:
        open_one = connected(variables)
        assert services.revoke("gone")
        with pytest.raises(psycopg.OperationalError):
            open_one.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError):
            connected(variables)
    assert not services.revoke("gone")


def test_a_session_of_another_host_does_not_move_here(own: Session, host_connection: psycopg.Connection[Any]) -> None:
    waiting = make_session(owner=make_user())
    assert rows(host_connection, "SELECT id FROM compute_session WHERE id = %s", waiting.pk) == []
    ended = run_session(host=make_host(name="gpu8"))
    ended.move_to(Status.ERROR, Reason.CONTAINER_LOST, "x")
    assert rows(host_connection, "SELECT id FROM compute_session WHERE id = %s", ended.pk) == []


def test_a_host_reads_but_cannot_write_what_versions_note(host_connection: psycopg.Connection[Any]) -> None:
    ((note,),) = rows(host_connection, versions.READ)
    assert json.loads(note)["last"]
    refused(host_connection, "SELECT name FROM django_migrations")
    refused(host_connection, "COMMENT ON TABLE django_migrations IS 'anything'")


def test_each_time_that_hosts_change_is_bounded(variables: dict[str, str]) -> None:
    for grant in (grant for grant in GRANTS if grant.update):
        types = roles._column_types(grant.table)
        times = {name for name in grant.update.split() if types[name].startswith(("time", "date", "interval"))}
        (written,) = roles._rows(
            "SELECT with_check FROM pg_policies WHERE tablename = %s AND cmd = 'UPDATE' AND %s = ANY (roles)",
            grant.table,
            roles.group_name(),
        )
        assert {name for name in times if f"({name} >= " in written and f"({name} <= " in written} == times


def test_a_host_writes_no_endless_times(own: Session, host_connection: psycopg.Connection[Any]) -> None:
    for table, column, values in (
        ("resources_host", "heartbeat_at", (*NO_TIMES, "now() + interval '2 minutes'")),
        ("resources_host", "lost_at", NO_TIMES),
        ("resources_host", "is_cordoned = true, drain_by", ("'infinity'", "'9999-12-31'")),
        ("compute_session", "last_activity_at", (*NO_TIMES, "now() + interval '2 hours'")),
        ("compute_session", "started_at", (*NO_TIMES, "now() - interval '1 year'")),
        ("compute_session", "preempt_by", ("'infinity'", "'-infinity'", "'9999-12-31'")),
    ):
        for value in values:
            refused(host_connection, f"UPDATE {table} SET {column} = {value}")
        assert changed(host_connection, f"UPDATE {table} SET {column} = clock_timestamp() + interval '1 second'") == 1


def test_a_host_adds_no_rows_of_other_times(own: Session, host_connection: psycopg.Connection[Any]) -> None:
    for value in NO_TIMES:
        for table, more in (("compute_sessionevent", ", '', '', '', ''"), ("compute_sessionusage", "")):
            names = ", old_status, new_status, reason, detail" if more else ""
            statement = f"INSERT INTO {table} (session_id, at{names}) VALUES (%s, {value}{more})"
            refused(host_connection, statement, own.pk)
    health = "INSERT INTO resources_hosthealth (host_id, failures, gpu_failures, problem, probe_pause) VALUES"
    for value in ("1000000 years", "-1 day"):
        refused(host_connection, f"{health} (%s, 0, 0, '', %s)", own.host_id, value)
    assert changed(host_connection, f"{health} (%s, 0, 0, '', '1 hour')", own.host_id) == 1


MEASURE = (
    "INSERT INTO resources_gpumeasurement (gpu_id, measured_at, reported_by, is_simulated, driver, cuda, version, hook,"
    " failed, skipped) VALUES (%s, now(), 'admin@web', true, %s, '', '', '', '', '')"
    " ON CONFLICT (gpu_id) DO UPDATE SET driver = excluded.driver"
)


def test_measurements_are_of_own_gpus_and_audited(
    own: Session, others: Session, host_connection: psycopg.Connection[Any]
) -> None:
    mine, theirs = (Gpu.objects.get(host__name=name).pk for name in ("gpu7", "gpu8"))
    refused(host_connection, MEASURE, theirs, "1")
    assert changed(host_connection, MEASURE, mine, "1") == 1
    assert changed(host_connection, MEASURE, mine, "2") == 1
    entries = AuditEntry.objects.filter(action="measured")
    assert {(entry.actor_name, entry.object_text) for entry in entries} == {("admin@gpu7", "gpu7")}
    assert [entry.changes["driver"] for entry in entries] == [["1", "2"], [None, "1"]]
    refused(host_connection, "DELETE FROM resources_gpumeasurement")
    refused(host_connection, "UPDATE accounts_auditentry SET action = 'x'")
    for date in ("infinity", "-infinity", "9999-12-31", "1999-12-31"):
        refused(host_connection, "UPDATE resources_gpumeasurement SET measured_at = %s", date)
    for number in range(58):
        changed(host_connection, MEASURE, mine, f"n{number}")
    refused(host_connection, MEASURE, mine, "one more within the hour")
