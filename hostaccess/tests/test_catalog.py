"""What PostgreSQL's own catalog says that a host may do: what hostaccess/grants.py names, and nothing beside it."""

from typing import Any, Final

import psycopg
from django.db import connection
from django.utils import timezone
from psycopg import sql

from deployments.tests.making import serving_deployment
from folders.models import FolderShare, Upload
from hostaccess.grants import ALL_ROWS, FUNCTIONS, GRANTS
from hostaccess.tests.test_attacks import changed, refused, rows
from notifications.models import Notification, NotificationPreference
from resources.models import Gpu, GpuMeasurement, GpuReading, HostHealth, HostImage, ImagePull
from sessions.models import ChangeReport, Conversion, Mount, Session, SessionUsage, UsageHistory
from tests.factories import (
    make_app,
    make_endpoint,
    make_folder,
    make_host,
    make_image,
    make_project,
    make_root,
    make_user,
    run_cluster,
    run_session,
)

# Every table that no host has any right to; a new one that a host needs is named in hostaccess/grants.py instead.
OUT_OF_REACH: Final = """
    account_emailaddress account_emailconfirmation accounts_accountinvitation accounts_apitoken accounts_auditentry
    accounts_loginsession accounts_sshhostkey accounts_sshkey accounts_user_groups accounts_user_user_permissions
    arrays_array arrays_arraytask auth_group auth_group_permissions auth_permission axes_accessattempt
    axes_accessattemptexpiration axes_accessfailurelog axes_accesslog compute_appport compute_change
    compute_endpointevent compute_fairuse compute_idlenotice compute_idlerule compute_idlerule_policies
    compute_idlerule_projects compute_idlerule_resource_groups compute_pastsize compute_requestedend compute_revocation
    compute_session_depends_on compute_sharelink compute_startforecast compute_summedday compute_ticket
    compute_touched compute_usagecorrection compute_usageday compute_usageperiod compute_usagesum
    deployments_deployment deployments_deploymentevent deployments_deploymenthost deployments_deploymentticket
    deployments_deploymenttoken deployments_prometheusquery deployments_revisionmount deployments_runtimevariant
    deployments_scalingrule deployments_stepwiserollout deployments_tokenusage django_admin_log django_content_type
    django_migrations django_session hostaccess_hostaccess imports_import imports_importcredential knox_authtoken
    mfa_authenticator
    notifications_announcement notifications_announcement_resource_groups notifications_dismissal
    notifications_servingwatch pages_launchdraft pages_listcolumns resources_elastichost resources_elasticpool
    resources_gpuweight resources_imagebuild resources_preset resources_resourcegroup_projects
    resources_resourcegroup_users
    restapi_idempotencykey socialaccount_socialaccount socialaccount_socialapp socialaccount_socialtoken
    specs_launchtemplate specs_templatelaunch specs_templateversion webhooks_webhook webhooks_webhookattempt
    webhooks_webhookdelivery
"""
# Functions that anybody may call and that run with the rights of who calls them.
FOR_ALL: Final = {
    "compute_broken_grant(character varying[])",
    "compute_broken_grant_of_many(character varying[])",
    "compute_decay(timestamp with time zone,timestamp with time zone,double precision)",
}
OF_TABLES: Final = ("DELETE", "TRUNCATE", "TRIGGER")
OF_COLUMNS: Final = ("SELECT", "INSERT", "UPDATE", "REFERENCES")
COLUMNS: Final = """
    SELECT relname, attname, privilege FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0
    CROSS JOIN unnest(%s::text[]) AS privilege
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT attisdropped
    AND has_column_privilege(pg_class.oid, attnum, privilege)
"""
TABLES: Final = """
    SELECT relname, privilege FROM pg_class CROSS JOIN unnest(%s::text[]) AS privilege
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f')
    AND has_table_privilege(oid, privilege)
"""
CALLABLE: Final = """
    SELECT oid::regprocedure::text FROM pg_proc
    WHERE pronamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
    AND prorettype <> 'trigger'::regtype AND has_function_privilege(oid, 'EXECUTE')
"""
# Where temporary tables come first, whoever calls the function chooses what it reads and writes as its owner.
LED_ASTRAY: Final = """
    SELECT oid::regprocedure::text FROM pg_proc
    WHERE prosecdef AND NOT coalesce('search_path=public, pg_temp' = ANY (proconfig), false)
"""
# What else roles may: each row is a right too many.
TOO_MANY: Final = """
    SELECT 'schema ' || nspname FROM pg_namespace WHERE has_schema_privilege(oid, 'CREATE')
    UNION SELECT 'database ' || privilege FROM unnest(ARRAY['CREATE', 'TEMPORARY']) AS privilege
    WHERE has_database_privilege(current_database(), privilege)
    UNION SELECT 'sequence ' || relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND
        CASE WHEN relkind = 'S' THEN has_sequence_privilege(oid, 'USAGE, SELECT, UPDATE') END
    UNION SELECT 'rows of ' || relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind <> 'S'
        AND has_any_column_privilege(oid, 'SELECT, INSERT, UPDATE') AND NOT relrowsecurity
    UNION SELECT 'role ' || rolname FROM pg_roles WHERE pg_has_role(oid, 'MEMBER')
        AND (rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls)
    UNION SELECT 'role ' || rolname FROM pg_roles WHERE pg_has_role(oid, 'MEMBER')
        AND NOT starts_with(rolname, 'gpuplatform_host')
"""

PLANTED: Final = (
    "CREATE TEMPORARY TABLE compute_fairuse (group_id bigint, user_id bigint, project_id bigint, cpu_seconds float,"
    " memory_byte_seconds float, fgpu_milli_seconds float, at timestamptz, UNIQUE (user_id, group_id, project_id))",
    "CREATE FUNCTION pg_temp.rise() RETURNS trigger LANGUAGE plpgsql AS"
    " 'BEGIN UPDATE public.accounts_user SET is_superuser = true; RETURN NEW; END'",
    "CREATE TRIGGER rise BEFORE INSERT ON compute_fairuse FOR EACH ROW EXECUTE FUNCTION pg_temp.rise()",
    "GRANT ALL ON compute_fairuse TO PUBLIC",
)


def test_a_host_has_the_rights_that_are_named(host_connection: psycopg.Connection[Any]) -> None:
    named: set[tuple[str, ...]] = set()
    for grant in GRANTS:
        every = grant.columns if grant.may_insert else set()
        for verb, columns in (("SELECT", grant.read.split()), ("UPDATE", grant.update.split()), ("INSERT", every)):
            named |= {(grant.table, column, verb) for column in columns}
        named |= {(grant.table, "DELETE")} if grant.may_delete else set()
    held = {*rows(host_connection, COLUMNS, list(OF_COLUMNS)), *rows(host_connection, TABLES, list(OF_TABLES))}
    assert held == named
    functions = {name.replace("varchar", "character varying").replace(", ", ",") for name in FUNCTIONS}
    assert {name for (name,) in rows(host_connection, CALLABLE)} == functions | FOR_ALL
    assert rows(host_connection, TOO_MANY) == []
    assert rows(host_connection, LED_ASTRAY) == []


def test_every_table_is_granted_or_out_of_reach(transactional_db: None) -> None:
    tables, granted = set(connection.introspection.table_names()), {grant.table for grant in GRANTS}
    hidden = set(OUT_OF_REACH.split())
    assert tables == granted | hidden, f"grant them or list them here: {tables ^ (granted | hidden)}"
    assert not granted & hidden


def make_others() -> None:
    """Make rows of another host and other users in every table that hosts may read."""
    owner, moment = make_user(), timezone.now()
    host = make_host(gpus=1)
    session, image, mine = run_session(host=host, owner=owner, fgpu=1000), make_image(), make_folder()
    run_cluster(2)
    make_endpoint(session)
    Session.objects.filter(pk=session.pk).update(project=make_project(owner))
    serving_deployment(1, host=host)
    make_root(host)
    make_app(image)
    gpu = Gpu.objects.get(host=host)
    for row in (
        HostHealth(host=host),
        GpuReading(gpu=gpu),
        GpuMeasurement(gpu=gpu, measured_at=moment, is_simulated=True),
        HostImage(host=host, image=image, size=1),
        ImagePull(host=host, image=image),
        Mount(session=session, folder=mine, folder_name="mine", path="/mine"),
        ChangeReport(session=session, attempt=1),
        Conversion(session=session, host=host, reference="r", name="n", tag="1"),
        SessionUsage(session=session),
        UsageHistory(session=session, begun_at=moment, step_seconds=1, folded_until=moment),
        FolderShare(folder=mine, user=owner),
        Upload(folder=mine, user=owner, path="p", length=1, expires_at=moment),
        NotificationPreference(user=owner, kind="FAILED", on_page=True, in_browser=True, by_email=True),
        Notification(user=owner, key="k", kind="FAILED", session=session, on_page=True, in_browser=True, by_email=True),
    ):
        row.save()


def test_no_row_of_others_is_seen_or_changed(host_connection: psycopg.Connection[Any]) -> None:
    make_others()
    failed = []
    for grant in (each for each in GRANTS if each.rows != ALL_ROWS or each.update or each.may_delete):
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM {grant.table}")
            assert cursor.fetchone()[0], f"make a row of {grant.table} in make_others"
        if grant.rows != ALL_ROWS and rows(host_connection, f"SELECT {grant.read.split()[0]} FROM {grant.table}"):
            failed.append(f"{grant.table} is read")
        changes = [f"UPDATE {grant.table} SET {column} = DEFAULT" for column in grant.update.split()]
        changes += [f"DELETE FROM {grant.table}"] if grant.may_delete else []
        failed += [statement for statement in changes if changed(host_connection, statement)]
    assert failed == []


def test_no_temporary_table_is_taken_for_the_platforms(own: Session, host_connection: psycopg.Connection[Any]) -> None:
    database = sql.Identifier(connection.settings_dict["NAME"]).as_string(None)
    allow = f"GRANT TEMPORARY ON DATABASE {database} TO PUBLIC"  # as where the platform's role does not own it
    refused(host_connection, "CREATE TEMPORARY TABLE mine (id int)")
    with connection.cursor() as cursor:
        cursor.execute(allow)
    try:
        for statement in PLANTED:
            host_connection.execute(statement)
        with host_connection.transaction():
            end = "UPDATE compute_session SET status = 'ERROR', ended_at = now() WHERE id = %s"
            assert changed(host_connection, end, own.pk) == 1
            host_connection.execute("DELETE FROM compute_gpushare WHERE lease_id = %s", [own.pk])
            host_connection.execute("DELETE FROM compute_lease WHERE session_id = %s", [own.pk])
    finally:
        with connection.cursor() as cursor:
            cursor.execute(allow.replace("GRANT", "REVOKE").replace(" TO ", " FROM "))
    own.owner.refresh_from_db()
    assert not own.owner.is_superuser
