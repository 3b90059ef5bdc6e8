"""With all that a GPU host has, PostgreSQL's disk cannot be filled: rows, columns, large objects, temporary files."""

from typing import Any, Final

import psycopg
import pytest
from django.db import connection
from psycopg.types.json import Jsonb

from hostaccess import roles
from hostaccess.grants import GRANTS, LARGEST_BYTES, LARGEST_OF, WITHOUT_LENGTH
from hostaccess.tests.test_attacks import changed, refused, rows
from sessions.models import Conversion, Session
from tests.factories import make_image, make_user

# What a host adds rows with, of which `n` is the number.
ADDED: Final = {
    "compute_sessionevent": "(session_id, at, old_status, new_status, reason, detail)"
    " SELECT %(session)s, now(), '', '', '', ''",
    "compute_sessionusage": "(session_id, at) SELECT %(session)s, now()",
    "compute_mount": "(session_id, folder_name, path, is_read_only, is_automatic, is_held_read_only, problem)"
    " SELECT %(session)s, 'f', '/' || n, true, true, false, ''",
    "resources_gpu": "(uuid, host_id, index, kind, name, memory, is_simulated, tier, is_present, problem)"
    " SELECT 'u' || n, %(host)s, 0, 'nvidia', 'x', 1, true, '', false, ''",
    "resources_app": "(image_id, name, title, icon, port, command, readiness_path, start_path, token_variable, hint,"
    " warm_up, position) SELECT %(image)s, 'a' || n, 't', '', 1, '', '/', '/', '', '', false, 1",
    "notifications_notification": "(user_id, key, kind, session_id, facts, created_at, on_page, in_browser, by_email,"
    " email_attempts, email_problem) SELECT %(admin)s, 'k' || n, 'GPU_OVERUSE', NULL, %(facts)s, now(), true, false,"
    " false, 0, ''",
}

ALIKE: Final = {"resources_app": "image_id = %(image)s", "notifications_notification": "user_id = %(admin)s"}


@pytest.fixture
def known(own: Session) -> dict[str, Any]:
    """What rows of the host refer to."""
    image = make_image(owner=own.owner, source="session", reference="lab/saved:1")
    made = {"session": own, "attempt": 1, "host": own.host, "state": "DONE", "ended_at": own.created_at}
    Conversion.objects.create(image=image, reference=image.reference, name="saved", tag="1", **made)
    facts, admin = Jsonb({"host": "gpu7"}), make_user(is_superuser=True)
    return {"session": own.pk, "host": own.host_id, "image": image.pk, "admin": admin.pk, "facts": facts}


def test_a_host_adds_rows_up_to_their_bound(known: dict[str, Any], host_connection: psycopg.Connection[Any]) -> None:
    bounds = {grant.table: grant.most for grant in GRANTS if grant.most}
    assert bounds.keys() == ADDED.keys()
    for table, most in bounds.items():
        insert = f"INSERT INTO {table} {ADDED[table]} FROM generate_series(%(first)s, %(last)s) n"
        one, two, three = ({**known, "first": number, "last": number} for number in (1_000_001, 1_000_002, 1_000_003))
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM {table} WHERE {ALIKE.get(table, 'true')}", known)
            (there,) = cursor.fetchone()
            cursor.execute(insert, {**known, "first": there + 2, "last": most})
        assert host_connection.execute(insert.encode(), one).rowcount == 1
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="no more than"):
            host_connection.execute(insert.encode(), two)
        with connection.cursor() as cursor:
            cursor.execute(insert, three)  # nothing is counted for the platform


def test_one_statement_of_a_host_adds_no_more(own: Session, host_connection: psycopg.Connection[Any]) -> None:
    most = {grant.table: grant.most for grant in GRANTS}["compute_mount"]
    insert = f"INSERT INTO compute_mount {ADDED['compute_mount']} FROM generate_series(1, {most + 1}) n"
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="no more than"):
        host_connection.execute(insert.encode(), {"session": own.pk})


def test_what_a_host_writes_has_a_length(own: Session, host_connection: psycopg.Connection[Any]) -> None:
    changes = ("log_tail = repeat('x', %s)", "avoided_hosts = array_fill(1, ARRAY[%s / 8])")
    for change in changes:
        refused(host_connection, f"UPDATE compute_session SET {change}", LARGEST_BYTES)
        assert changed(host_connection, f"UPDATE compute_session SET {change}", LARGEST_BYTES // 2) == 1
    facts = "jsonb_build_object('host', 'gpu7', 'more', repeat('x', %s))"
    notice = (
        "INSERT INTO notifications_notification (user_id, key, kind, facts, created_at, on_page, in_browser, by_email,"
        f" email_attempts, email_problem) SELECT %s, 'k', 'GPU_OVERUSE', {facts}, now(), true, false, false, 0, ''"
    )
    admin = make_user(is_superuser=True).pk
    refused(host_connection, notice, admin, LARGEST_OF["facts"])
    assert changed(host_connection, notice, admin, 100) == 1


def test_each_column_without_a_length_is_bounded(variables: dict[str, str]) -> None:
    for grant in GRANTS:
        types = roles._column_types(grant.table)
        for verb, names in (("UPDATE", grant.update.split()), ("INSERT", types if grant.may_insert else ())):
            endless = {name for name in names if types[name] in WITHOUT_LENGTH}
            conditions = roles._rows(
                "SELECT with_check FROM pg_policies WHERE tablename = %s AND cmd = %s AND %s = ANY (roles)",
                *(grant.table, verb, roles.group_name()),
            )
            assert {name for name in endless if f"pg_column_size({name}) <= " in conditions[0]} == endless


def test_a_host_makes_no_large_objects(host_connection: psycopg.Connection[Any]) -> None:
    for call in ("lo_create(0)", "lo_creat(-1)", "lo_from_bytea(0, 'x')", "lo_put(1, 0, 'x')", "lowrite(0, 'x')"):
        refused(host_connection, f"SELECT {call}")


def test_an_upgrade_takes_large_objects_from_hosts(host_connection: psycopg.Connection[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("GRANT EXECUTE ON FUNCTION lo_create(oid) TO PUBLIC")  # as PostgreSQL has it
    assert rows(host_connection, "SELECT lo_create(0)")
    roles.refresh_privileges()
    refused(host_connection, "SELECT lo_create(0)")


def test_temporary_files_of_a_host_are_bounded(host_connection: psycopg.Connection[Any]) -> None:
    assert rows(host_connection, "SHOW temp_file_limit") == [(roles.TEMPORARY_FILES,)]
    refused(host_connection, "SET temp_file_limit = -1")
    host_connection.execute("SET work_mem = '64kB'")
    endless = "SELECT count(*) FROM (SELECT n, repeat('x', 1000) FROM generate_series(1, 1000000) n ORDER BY 2, 1) s"
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
        host_connection.execute(endless.encode())
