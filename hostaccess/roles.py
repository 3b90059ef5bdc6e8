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

from hostaccess.grants import AHEAD, AHEAD_OF, FUNCTIONS, GRANTS, HOST, TableGrant, time_bounds
from resources.models import Installation

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 100  # of a host: its worker has a pool of 40, its gateway another
POLICIES: Final[dict[str, LiteralString]] = {
    "SELECT": "CREATE POLICY {name} ON {table} FOR SELECT TO {group} USING ({rows})",
    "INSERT": "CREATE POLICY {name} ON {table} FOR INSERT TO {group} WITH CHECK ({written})",
    "UPDATE": "CREATE POLICY {name} ON {table} FOR UPDATE TO {group} USING ({changed}) WITH CHECK ({written})",
    "DELETE": "CREATE POLICY {name} ON {table} FOR DELETE TO {group} USING ({changed})",
}
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
        for function in _rows(TRIGGER_FUNCTIONS, SEARCH_PATH):
            _execute("ALTER FUNCTION {f} SECURITY DEFINER SET {path}", f=_raw(function), path=_raw(SEARCH_PATH))
        for function in FUNCTIONS:
            _execute("GRANT EXECUTE ON FUNCTION {f} TO {group}", f=_raw(function), group=group)
        for table in set(_rows(GRANTED_TABLES, group_name())) - {grant.table for grant in GRANTS}:
            _execute("REVOKE ALL ON {table} FROM {group}", table=sql.Identifier(table), group=group)
        for role in _rows("SELECT rolname FROM pg_roles WHERE starts_with(rolname, %s)", role_prefix()):
            _execute(TAKE_PART, role=sql.Identifier(role))
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
    wanted = {"SELECT": True, "INSERT": grant.may_insert, "UPDATE": bool(grant.update), "DELETE": grant.may_delete}
    conditions = {
        "rows": _condition(grant.rows),
        "changed": _condition(grant.changed or grant.rows),
    }
    types = _column_types(grant.table)
    changeable = {name: types[name] for name in grant.update.split()}
    for verb in (verb for verb, is_wanted in wanted.items() if is_wanted):
        bounds = time_bounds(changeable if verb == "UPDATE" else types)
        name = sql.Identifier(f"{group_name()}_{verb.lower()}")
        written = _condition(" AND ".join([f"({grant.written or grant.rows})", *bounds]))
        _execute(POLICIES[verb], name=name, table=table, group=group, written=written, **conditions)


def _digest() -> str:
    return hashlib.sha256(repr((GRANTS, FUNCTIONS, POLICIES, AHEAD, AHEAD_OF)).encode()).hexdigest()


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
