"""The database roles of hosts: made, held to hostaccess/grants.py, and dropped.

Every role is a member of one group of the installation, which has the privileges; row-level security tells hosts apart.
The platform's own role owns the tables, so that row-level security does not apply to it.
"""

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, LiteralString

from django.db import ProgrammingError, connection, transaction
from psycopg import sql

from hostaccess.grants import (
    AHEAD,
    AHEAD_OF,
    FUNCTIONS,
    GRANTS,
    HOST,
    LARGEST_BYTES,
    LARGEST_OF,
    TableGrant,
    size_bounds,
    time_bounds,
)
from resources.models import Installation

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 100  # of a host: its worker has a pool of 40, its gateway another
POLICIES: Final[dict[str, LiteralString]] = {
    "SELECT": "CREATE POLICY {name} ON {table} FOR SELECT TO {group} USING ({rows})",
    "INSERT": "CREATE POLICY {name} ON {table} FOR INSERT TO {group} WITH CHECK ({written})",
    "UPDATE": "CREATE POLICY {name} ON {table} FOR UPDATE TO {group} USING ({changed}) WITH CHECK ({written})",
    "DELETE": "CREATE POLICY {name} ON {table} FOR DELETE TO {group} USING ({changed})",
}
# Before each row, so that no statement of many has filled the disk before it fails; nothing is counted for others.
BOUND_ROWS: Final = """
    CREATE OR REPLACE TRIGGER hostaccess_bound_rows BEFORE INSERT ON {table} FOR EACH ROW
    WHEN (starts_with(session_user::text, {prefix})) EXECUTE FUNCTION hostaccess_bound_rows({alike}, {most})
"""
FREE_ROWS: Final = "DROP TRIGGER IF EXISTS hostaccess_bound_rows ON {table}"
TAKE_PART: Final = "GRANT {role} TO CURRENT_USER"  # who sees and ends a role's connections is a member, or superuser
# Triggers guard what a host does not see, so they run with the rights of the tables' owner. Temporary tables come last:
# else those of a host would be taken for the platform's, and triggers of its own would run with the owner's rights.
SEARCH_PATH: Final = "search_path=public, pg_temp"
TRIGGER_FUNCTIONS: Final = """
    SELECT DISTINCT function.oid::regprocedure::text FROM pg_trigger trigger
    JOIN pg_class owned ON owned.oid = trigger.tgrelid
    JOIN pg_proc function ON function.oid = trigger.tgfoid
    WHERE NOT trigger.tgisinternal AND owned.relnamespace = 'public'::regnamespace
    AND NOT (function.prosecdef AND %s = ANY (coalesce(function.proconfig, '{}')))
"""
# Which PostgreSQL lets everybody fill its disk by; in this database nobody else needs them.
LARGE_OBJECTS: Final = """
    SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
    AND proname IN ('lo_creat', 'lo_create', 'lo_from_bytea', 'lo_put', 'lo_truncate', 'lo_truncate64', 'lowrite')
    AND has_function_privilege('public', oid, 'EXECUTE')
"""
TEMPORARY_FILES: Final = "128MB"  # of a connection; queries of the host worker sort little
HAS_PRIVILEGES_OF_SETTINGS: Final = "SELECT 1 WHERE current_setting('server_version_num')::int >= 150000"
MAY_BOUND_FILES: Final = "SELECT 1 WHERE has_parameter_privilege('temp_file_limit', 'SET')"
IS_SUPERUSER: Final = "SELECT 1 FROM pg_roles WHERE rolname = CURRENT_USER AND rolsuper"

COLUMN_TYPES: Final = (
    "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = 'public' AND table_name = %s"
)
GRANTED_TABLES: Final = "SELECT DISTINCT table_name FROM information_schema.role_column_grants WHERE grantee = %s"


class RolesUnavailableError(Exception):
    """The platform's database role may not make roles; the message says what an administrator does."""


def group_name() -> str:
    """Return the name of the group of all hosts of this installation, which may share its server with others."""
    return f"gpuplatform_hosts_{Installation.current_key()[:8]}"


def role_name(number: int) -> str:
    """Return the name of the role of the host whose access has this number."""
    return f"{role_prefix()}{number}"


def role_prefix() -> str:
    """Return what the names of the roles of this installation's hosts begin with, and no others."""
    return f"gpuplatform_host_{Installation.current_key()[:8]}_"


def refresh_privileges(**kwargs: Any) -> None:
    """Hold hosts to the grants as they are now; no-op where no host was ever added. A receiver of post_migrate."""
    if "hostaccess_hostaccess" in connection.introspection.table_names() and _exists(group_name()):
        apply_grants()


def apply_grants() -> None:
    """Make the group of hosts, and give it what the grants name and nothing else; idempotent.

    Locks one table at a time, since the platform may be running. Raises RolesUnavailableError.
    """
    with _explained():
        group = sql.Identifier(group_name())
        if not _exists(group_name()):
            _execute("CREATE ROLE {group} NOLOGIN", group=group)
        _execute("GRANT USAGE ON SCHEMA public TO {group}", group=group)
        database = sql.Identifier(str(connection.settings_dict["NAME"]))
        _execute("REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC", database=database)
        for function in _rows(LARGE_OBJECTS):
            _execute("REVOKE EXECUTE ON FUNCTION {f} FROM PUBLIC", f=_raw(function))
        if open_to_all := _rows(LARGE_OBJECTS):
            text = (
                "hosts may make large objects; as a superuser of PostgreSQL: REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC"
            )
            logger.warning(text, ", ".join(open_to_all))
        for function in _rows(TRIGGER_FUNCTIONS, SEARCH_PATH):
            _execute("ALTER FUNCTION {f} SECURITY DEFINER SET {path}", f=_raw(function), path=_raw(SEARCH_PATH))
        for function in FUNCTIONS:
            _execute("GRANT EXECUTE ON FUNCTION {f} TO {group}", f=_raw(function), group=group)
        for table in set(_rows(GRANTED_TABLES, group_name())) - {grant.table for grant in GRANTS}:
            _execute("REVOKE ALL ON {table} FROM {group}", table=sql.Identifier(table), group=group)
        for role in _rows("SELECT rolname FROM pg_roles WHERE starts_with(rolname, %s)", role_prefix()):
            _execute(TAKE_PART, role=sql.Identifier(role))
            _bound_temporary_files(role)
        for grant in GRANTS:
            with transaction.atomic():
                _apply(grant, group)
        _execute("COMMENT ON ROLE {group} IS {digest}", group=group, digest=sql.Literal(_digest()))


def ensure_grants() -> None:
    """Apply the grants unless they are those that were applied last. Raises RolesUnavailableError."""
    applied = _rows("SELECT shobj_description(oid, 'pg_authid') FROM pg_roles WHERE rolname = %s", group_name())
    if applied != [_digest()]:
        apply_grants()


def make_role(role: str, password: str) -> None:
    """Make the role, or give it this password, in the caller's transaction. Raises RolesUnavailableError."""
    with _explained():
        names = {"role": sql.Identifier(role), "group": sql.Identifier(group_name())}
        verb: LiteralString = "ALTER" if _exists(role) else "CREATE"
        _execute(
            verb + " ROLE {role} LOGIN INHERIT CONNECTION LIMIT {limit} PASSWORD {verifier}",
            **names,
            limit=sql.Literal(MAX_CONNECTIONS),
            verifier=sql.Literal(_verifier(role, password)),
        )
        _execute("GRANT {group} TO {role}", **names)
        _execute(TAKE_PART, **names)
        _bound_temporary_files(role)


def drop_role(role: str) -> None:
    """End the role's connections and drop it; no-op for one that is not there. Raises RolesUnavailableError."""
    if not _exists(role):
        return
    with _explained():
        name = sql.Identifier(role)
        with transaction.atomic():
            _execute("ALTER ROLE {role} NOLOGIN", role=name)
            _execute(TAKE_PART, role=name)
        with transaction.atomic():  # once no new connection is possible
            _rows("SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity WHERE usename = %s", role)
            _execute("DROP OWNED BY {role}", role=name)
            _execute("DROP ROLE {role}", role=name)


def _apply(grant: TableGrant, group: sql.Identifier) -> None:
    """Replace what hosts may do with one table."""
    table = sql.Identifier(grant.table)
    _execute("ALTER TABLE {table} ENABLE ROW LEVEL SECURITY", table=table)
    for policy in _rows(
        "SELECT policyname FROM pg_policies WHERE tablename = %s AND starts_with(policyname, %s)",
        grant.table,
        group_name(),
    ):
        _execute("DROP POLICY {name} ON {table}", name=sql.Identifier(policy), table=table)
    _execute("REVOKE ALL ON {table} FROM {group}", table=table, group=group)
    for verb, columns in (("SELECT", grant.read), ("UPDATE", grant.update)):
        if columns:
            parts = {"verb": _raw(verb), "columns": _columns(columns), "table": table, "group": group}
            _execute("GRANT {verb} ({columns}) ON {table} TO {group}", **parts)
    for verb, is_wanted in (("INSERT", grant.may_insert), ("DELETE", grant.may_delete)):
        if is_wanted:
            _execute("GRANT {verb} ON {table} TO {group}", verb=_raw(verb), table=table, group=group)
    bound = {"prefix": role_prefix(), "alike": grant.alike, "most": grant.most}
    literals = {name: sql.Literal(value) for name, value in bound.items()}
    _execute(BOUND_ROWS if grant.most else FREE_ROWS, table=table, **literals)
    wanted = {"SELECT": True, "INSERT": grant.may_insert, "UPDATE": bool(grant.update), "DELETE": grant.may_delete}
    conditions = {
        "rows": _condition(grant.rows),
        "changed": _condition(grant.changed or grant.rows),
    }
    types = _column_types(grant.table)
    changeable = {name: types[name] for name in grant.update.split()}
    for verb in (verb for verb, is_wanted in wanted.items() if is_wanted):
        writable = changeable if verb == "UPDATE" else types
        bounds = (*time_bounds(writable), *size_bounds(writable))
        name = sql.Identifier(f"{group_name()}_{verb.lower()}")
        written = _condition(" AND ".join([f"({grant.written or grant.rows})", *bounds]))
        _execute(POLICIES[verb], name=name, table=table, group=group, written=written, **conditions)


def _bound_temporary_files(role: str) -> None:
    """Bound what queries of the role put on disk, where the platform's role may: by default superusers alone do."""
    if _rows(MAY_BOUND_FILES if _rows(HAS_PRIVILEGES_OF_SETTINGS) else IS_SUPERUSER):
        parts = {"role": sql.Identifier(role), "limit": sql.Literal(TEMPORARY_FILES)}
        _execute("ALTER ROLE {role} SET temp_file_limit = {limit}", **parts)
    else:
        text = "%s: its temporary files have no bound; as a superuser: GRANT SET ON PARAMETER temp_file_limit TO %s"
        logger.warning(text, role, connection.settings_dict["USER"])


def _digest() -> str:
    parts = (GRANTS, FUNCTIONS, POLICIES, AHEAD, AHEAD_OF, LARGEST_BYTES, LARGEST_OF, BOUND_ROWS, LARGE_OBJECTS)
    return hashlib.sha256(repr((*parts, TEMPORARY_FILES)).encode()).hexdigest()


def _column_types(table: str) -> dict[str, str]:
    with connection.cursor() as cursor:
        cursor.execute(COLUMN_TYPES, [table])
        return dict(cursor.fetchall())


def _columns(names: str) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, names.split()))


def _condition(text: str) -> sql.Composable:
    return _raw(text.replace("@HOST@", HOST))


def _raw(text: str) -> sql.Composable:
    """Return SQL of this package, or of the database's own catalogue, as it is."""
    return sql.SQL(text)  # no literal, but nobody's input either


def _execute(statement: LiteralString, **parts: sql.Composable) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL(statement).format(**parts).as_string(cursor.cursor))


def _rows(statement: str, *parameters: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters or None)
        return [str(row[0]) for row in cursor.fetchall()]


def _exists(role: str) -> bool:
    return bool(_rows("SELECT 1 FROM pg_roles WHERE rolname = %s", role))


def _verifier(role: str, password: str) -> str:
    """Return what PostgreSQL stores of the password, so that it is in no statement, and in no log of statements."""
    connection.ensure_connection()
    encrypted = connection.connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256")
    return str(encrypted.decode())


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except ProgrammingError as error:  # insufficient privilege, above all
        raise RolesUnavailableError(
            f"PostgreSQL refuses: {str(error).strip()}. The platform's role must own its tables and may have to make "
            "roles: ALTER ROLE <its name> CREATEROLE, as a superuser of PostgreSQL."
        ) from error
