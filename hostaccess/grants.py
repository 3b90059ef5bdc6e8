"""What a host that has joined may do in the database: per table its columns, and which rows.

Nothing is allowed that is not named here, so a new column or table is out of a host's reach until it is named.
tests/test_grants.py fails for a column that is in none of the lists, and says what to do. Rows are held by row-level
security: an expression over `@HOST@`, the id of the host whose role asks, which is NULL for every other role.

The tables are those of higher packages too; they are named as text, as PostgreSQL knows them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

HOST: Final = "(SELECT hostaccess_host())"  # as a subquery: asked once for a statement
ALL_ROWS: Final = "true"
OF_HOST: Final = "host_id = @HOST@"


def _of_session(column: str = "session_id") -> str:
    """Return the condition that the row belongs to a session of the host; the sessions' own condition applies."""
    return f"EXISTS (SELECT FROM compute_session mine WHERE mine.id = {column})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableGrant:
    """What a host may do with one table; columns are separated by spaces."""

    table: str
    read: str  # columns
    rows: str  # condition of the rows that it may read
    withheld: str = ""  # columns that it may not read; queries of the host worker leave them out
    update: str = ""  # columns
    may_insert: bool = False
    may_delete: bool = False
    changed: str = ""  # condition of the rows that it may change and delete; empty: that of `rows`
    written: str = ""  # condition of rows as they are inserted or changed; empty: that of `rows`
    most: int = 0  # rows of the table with the `alike` of a row that it inserts; 0: its keys bound them
    alike: str = ""  # condition on `held`, a row of the table, and `added`, the one that is inserted

    @property
    def columns(self) -> set[str]:
        """The columns that this grant knows of."""
        return {*self.read.split(), *self.withheld.split()}


# How far ahead of the database's clock a host may write a time; none is before EARLIEST, or without an end. Everybody
# reads these rows, and Python knows no infinite times.
EARLIEST: Final = "2020-01-01Z"
AHEAD: Final = "1 hour"
AHEAD_OF: Final = {
    "heartbeat_at": "1 minute",  # after which a host that was revoked is silent
    **dict.fromkeys(("measure_due_at", "email_due_at", "probe_at"), "1 day"),
    **dict.fromkeys(("drain_by", "eta", "start_by", "preempt_by"), "100 years"),  # by what administrators set
}
LONGEST: Final = "30 days"  # of a duration


def time_bounds(types: Mapping[str, str]) -> Iterator[str]:
    """Yield the conditions that the times and durations of a row are in bounds, by the types of its columns."""
    for name, kind in types.items():
        if kind == "timestamp with time zone":
            latest = f"clock_timestamp() + interval '{AHEAD_OF.get(name, AHEAD)}'"
            yield f"({name} BETWEEN '{EARLIEST}' AND {latest}) IS NOT FALSE"
        elif kind == "interval":
            yield f"({name} BETWEEN interval '0' AND interval '{LONGEST}') IS NOT FALSE"


# Bytes of a column that has no length of its own: what the product writes is far below.
LARGEST_BYTES: Final = 1 << 20
LARGEST_OF: Final = {"report": 4 << 20, "recipe": 4 << 20, "facts": 16 << 10}
WITHOUT_LENGTH: Final = frozenset({"text", "jsonb", "bytea", "ARRAY"})


def size_bounds(types: Mapping[str, str]) -> Iterator[str]:
    """Yield the conditions that the columns of a row without a length of their own are no larger, by their types."""
    for name, kind in types.items():
        if kind in WITHOUT_LENGTH:
            yield f"(pg_column_size({name}) <= {LARGEST_OF.get(name, LARGEST_BYTES)}) IS NOT FALSE"


_OF_SAME_SESSION: Final = "held.session_id = added.session_id"
_OWN_CONVERSION: Final = """EXISTS (
    SELECT FROM compute_conversion made
    JOIN compute_session saved ON saved.id = made.session_id
    WHERE made.host_id = @HOST@ AND (
        made.image_id = resources_image.id
        OR made.image_id IS NULL AND made.reference = resources_image.reference
           AND saved.owner_id = resources_image.owner_id AND made.state IN ('SAVING', 'PUSHING', 'DONE')
    )
)"""
_OF_OWN_CONVERSION: Final = (
    "EXISTS (SELECT FROM resources_image WHERE resources_image.id = image_id AND resources_image.source = 'session'"
    f" AND {_OWN_CONVERSION})"
)
_REACHED_FOLDER: Final = "EXISTS (SELECT FROM folders_hostroot here WHERE here.root_id = folders_folder.root_id)"
_OF_REACHED_FOLDER: Final = "EXISTS (SELECT FROM folders_folder reached WHERE reached.id = folder_id)"
_OF_KNOWN_USER: Final = "EXISTS (SELECT FROM accounts_user known WHERE known.id = user_id)"

_GIVEN_BACK: Final = "host_id IS NULL AND status = 'PENDING' AND @HOST@ = ANY (avoided_hosts)"
_OWN_ALERT: Final = """(
    session_id IS NULL AND kind IN ('HOST_FAULTY', 'HOST_BACK', 'GPU_OVERUSE', 'OUTPUT_FLOOD', 'SHARED_LIMIT')
    AND facts ->> 'host' = (SELECT hostaccess_name())
    AND EXISTS (SELECT FROM accounts_user told WHERE told.id = user_id AND told.is_superuser)
)"""
_TELLS_OF_OWN: Final = f"""{_OWN_ALERT}
    OR EXISTS (SELECT FROM compute_session mine WHERE mine.id = session_id AND mine.owner_id = user_id)
"""  # no input of anybody

GRANTS: Final = (
    TableGrant(table="resources_installation", read="id key singleton", rows=ALL_ROWS),
    TableGrant(
        table="resources_resourcegroup",
        read="id name description fgpu_per_gpu host_loss_grace use_mps placement queue_order ageing"
        " reservation_delay max_lifetime pending_timeout is_active open_to_all sharing start_allowance"
        " half_life starvation_limit deny_private_networks allow_interactive allow_batch preemption_grace"
        " preemptible_charge_percent end_gpu_overuse cpu_overcommit cluster_host_network accelerator",
        rows=ALL_ROWS,
    ),
    TableGrant(
        table="resources_host",
        read="id name group_id status is_cordoned cordon_reason drain_by cpu memory architecture heartbeat_at lost_at"
        " gateway_url cluster_address machine_id engine_id boot_id gpu_topology gpu_driver topology",
        update="status is_cordoned cordon_reason drain_by cpu memory architecture heartbeat_at lost_at gateway_url"
        " cluster_address machine_id engine_id boot_id gpu_topology gpu_driver",
        may_insert=True,
        rows="name = (SELECT hostaccess_name())",
        # A new host joins the group that was chosen for it; later its group is not its own to change.
        written="name = (SELECT hostaccess_name()) AND (id = @HOST@ OR group_id = (SELECT hostaccess_group()))",
    ),
    TableGrant(
        table="resources_hosthealth",
        read="host_id failures gpu_failures problem faulty_since probe_at probe_pause returned_at",
        update="failures gpu_failures problem faulty_since probe_at probe_pause returned_at",
        may_insert=True,
        rows=OF_HOST,
    ),
    TableGrant(
        table="resources_gpu",  # one that its host no longer has may be taken over by another
        read="id uuid host_id index kind name memory is_simulated tier is_present problem",
        update="host_id index kind name memory is_simulated tier is_present problem",
        may_insert=True,
        rows="host_id = @HOST@ OR NOT is_present",
        written=OF_HOST,
        most=1_000,
        alike="held.host_id = added.host_id",
    ),
    TableGrant(
        table="resources_gpureading",
        read="gpu_id at utilisation memory_used temperature power",
        update="at utilisation memory_used temperature power",
        may_insert=True,
        rows="EXISTS (SELECT FROM resources_gpu gpu WHERE gpu.id = gpu_id AND gpu.host_id = @HOST@)",
    ),
    TableGrant(
        table="resources_gpumeasurement",
        read="gpu_id measured_at reported_by is_simulated driver cuda version hook failed skipped memory_exact"
        " share_error_points idle_used_percent handback_ms launch_added_ns torch_training_percent jax_training_percent",
        update="measured_at reported_by is_simulated driver cuda version hook failed skipped memory_exact"
        " share_error_points idle_used_percent handback_ms launch_added_ns torch_training_percent jax_training_percent",
        may_insert=True,
        rows="EXISTS (SELECT FROM resources_gpu gpu WHERE gpu.id = gpu_id AND gpu.host_id = @HOST@)",
    ),
    TableGrant(
        table="resources_registry",
        read="id name address username encrypted_password is_push_target allows_http",
        rows=ALL_ROWS,
    ),
    TableGrant(
        table="resources_image",
        read="id environment version reference description is_enabled is_default min_cpu min_memory min_fgpu owner_id"
        " min_gpu_memory source architecture accelerators size enable_hint is_local registry_digest removed_at"
        " created_at",
        update="environment version reference description is_enabled is_default min_cpu min_memory min_fgpu owner_id"
        " min_gpu_memory source architecture accelerators size enable_hint is_local registry_digest removed_at"
        " created_at",
        may_insert=True,
        rows=ALL_ROWS,
        changed=_OWN_CONVERSION,
        written=f"owner_id IS NOT NULL AND source = 'session' AND {_OWN_CONVERSION}",
    ),
    TableGrant(
        table="resources_app",
        read="id image_id name title icon port command readiness_path start_path token_variable hint warm_up position",
        may_insert=True,
        may_delete=True,
        rows=ALL_ROWS,
        changed=_OF_OWN_CONVERSION,
        written=_OF_OWN_CONVERSION,
        most=100,
        alike="held.image_id = added.image_id",
    ),
    TableGrant(
        table="resources_hostimage",
        read="id host_id image_id size seen_at",
        update="size seen_at",
        may_insert=True,
        may_delete=True,
        rows=OF_HOST,
    ),
    TableGrant(
        table="resources_imagepull",
        read="id host_id image_id state detail requested_at",
        update="state detail",
        rows=OF_HOST,
    ),
    TableGrant(
        table="accounts_resourcepolicy",
        read="id name cpu memory fgpu max_sessions max_pending max_lifetime max_extension allow_sudo"
        " allow_public_apps disk_bytes disk_files max_folders storage_bytes storage_files max_private_images"
        " allow_conversion allow_unlisted_images share_weight max_per_launch max_priority preemptible_only max_parked"
        " max_parked_time require_second_factor max_cluster_size max_array_tasks",
        rows=ALL_ROWS,
    ),
    TableGrant(
        table="accounts_project",
        read="id name description policy_id share_weight is_active created_at",
        rows="EXISTS (SELECT FROM compute_session mine WHERE mine.project_id = accounts_project.id)"
        " OR EXISTS (SELECT FROM folders_folder reached WHERE reached.project_id = accounts_project.id)",
    ),
    TableGrant(
        table="accounts_membership",
        read="id project_id user_id role created_at",
        rows="EXISTS (SELECT FROM folders_folder reached WHERE reached.project_id = accounts_membership.project_id)",
    ),
    TableGrant(
        table="accounts_user",
        read="id is_superuser is_active is_staff first_name last_name last_login date_joined email policy_id language"
        " share_weight",
        withheld="password",
        rows="EXISTS (SELECT FROM compute_session mine WHERE mine.owner_id = accounts_user.id)"
        " OR EXISTS (SELECT FROM folders_folder reached WHERE reached.owner_id = accounts_user.id)"
        " OR is_superuser",  # who is told of a faulty host
    ),
    TableGrant(
        table="compute_session",
        read="id owner_id project_id name image_id resource_group_id cpu memory shared_memory fgpu environment priority"
        " allow_sudo kind command time_limit extension not_before required_roots wanted_roots status reason detail eta"
        " eta_reason result attempt host_id avoided_hosts refused_until start_failures start_by container_id address"
        " last_activity_at ssh_public_key pulled_bytes pull_bytes exit_code log_tail created_at status_at started_at"
        " ended_at charge_percent group_choices group_waits gpu_model min_gpu_memory gpu_memory min_fgpu"
        " is_preemptible preempt_by"
        " preempted_for preemptions claim is_parking parked_on_id parked_attempt parked_bytes resize core_milli"
        " gpu_weight_milli"
        " cluster_id rank is_elastic is_task previous_output",
        update="status reason detail eta eta_reason result host_id avoided_hosts start_failures start_by container_id"
        " address last_activity_at ssh_public_key pulled_bytes pull_bytes exit_code log_tail status_at started_at"
        " ended_at preempt_by preempted_for parked_bytes previous_output",
        rows=f"host_id = @HOST@ OR {_GIVEN_BACK} OR parked_on_id = @HOST@",
        changed=f"host_id = @HOST@ OR {_GIVEN_BACK}",
        # Its owner pays for the time between the two, and had not asked before it was made.
        written=f"(host_id = @HOST@ OR {_GIVEN_BACK})"
        " AND least(status_at, started_at, ended_at) > created_at - interval '1 hour'",
    ),
    TableGrant(
        table="compute_cluster",
        read="id size max_size mode shares_gpus runs_on_all max_restarts restarts network host_addresses private_key"
        " public_key first_port started_at ended_at main_differs",
        rows="EXISTS (SELECT FROM compute_session mine WHERE mine.cluster_id = compute_cluster.id)",
    ),
    TableGrant(
        table="compute_sessionevent",
        read="id session_id at old_status new_status reason detail actor_id",
        may_insert=True,
        rows=_of_session(),
        most=10_000,
        alike=_OF_SAME_SESSION,
    ),
    TableGrant(table="compute_lease", read="session_id host_id cpu core_milli memory", may_delete=True, rows=OF_HOST),
    TableGrant(
        table="compute_gpushare",
        read="id lease_id gpu_id milli",
        may_delete=True,
        rows="EXISTS (SELECT FROM compute_lease held WHERE held.session_id = lease_id)",
    ),
    TableGrant(
        table="compute_mount",
        read="id session_id folder_id folder_name path is_read_only is_automatic is_held_read_only problem",
        update="is_read_only is_held_read_only problem",
        may_insert=True,
        may_delete=True,
        rows=_of_session(),
        most=1_000,
        alike=_OF_SAME_SESSION,
    ),
    TableGrant(
        table="compute_endpoint",
        read="id session_id app title port token state detail obstacle output epoch is_public public_until listen_port"
        " opened_by_id opened_at",
        update="state detail obstacle output",
        rows=_of_session(),
    ),
    TableGrant(
        table="compute_conversion",
        read="id session_id attempt host_id requested_by_id name tag reference description state progress problem"
        " recipe image_id created_at ended_at",
        update="state progress problem recipe image_id ended_at",
        rows=OF_HOST,
        written="host_id = @HOST@ AND (image_id IS NULL OR EXISTS (SELECT FROM resources_image saved"
        " WHERE saved.id = image_id AND saved.reference = compute_conversion.reference))",
    ),
    TableGrant(
        table="compute_changereport",
        read="session_id attempt state requested_at made_at report recipe problem",
        update="state made_at report recipe problem",
        rows=_of_session(),
    ),
    TableGrant(
        table="compute_sessionusage",
        read="id session_id at cpu_milli memory received sent gpu_memory gpu_utilisation",
        may_insert=True,
        may_delete=True,  # by workers of the version before
        rows=_of_session(),
        most=20_000,  # two days, of which the platform keeps two hours
        alike=_OF_SAME_SESSION,
    ),
    TableGrant(
        table="compute_usagehistory",
        read="session_id begun_at step_seconds points folded_until gpu_memory_share gpu_memory_cards",
        update="begun_at step_seconds points folded_until gpu_memory_share gpu_memory_cards",
        may_insert=True,
        rows=_of_session(),
    ),
    TableGrant(
        table="deployments_replica",
        read="session_id deployment_id revision_id health health_detail failures healthy_at unhealthy_at draining_since"
        " is_asleep woken_at failure is_settled created_at",
        update="health health_detail failures healthy_at unhealthy_at",
        rows=_of_session(),
    ),
    TableGrant(
        table="deployments_revision",
        read="id port health_kind health_path start_seconds interval_seconds timeout_seconds retries",
        withheld="deployment_id number image_id variant_id command environment cpu memory shared_memory fgpu gpu_memory"
        " min_fgpu created_by_id created_at note",
        rows="EXISTS (SELECT FROM deployments_replica mine WHERE mine.revision_id = deployments_revision.id)",
    ),
    TableGrant(table="folders_storageroot", read="id name path key is_shared is_enabled is_default", rows=ALL_ROWS),
    TableGrant(
        table="folders_hostroot",
        read="id host_id root_id is_present problem quota_support total_bytes free_bytes checked_at",
        update="is_present problem quota_support total_bytes free_bytes checked_at",
        may_insert=True,
        rows=OF_HOST,
    ),
    TableGrant(
        table="folders_folder",
        read="id owner_id project_id name root_id created_at trashed_at deleting_at used_bytes used_files measured_at"
        " measure_due_at measure_pause measuring_since",
        update="used_bytes used_files measured_at measure_due_at measure_pause measuring_since",
        rows=_REACHED_FOLDER,
    ),
    TableGrant(
        table="folders_foldershare",
        read="id folder_id user_id is_read_only created_at",
        rows=_OF_REACHED_FOLDER,
    ),
    TableGrant(
        table="folders_upload",
        read="id folder_id user_id path length on_conflict created_at expires_at finished_at",
        may_delete=True,
        rows=_OF_REACHED_FOLDER,
    ),
    TableGrant(
        table="notifications_notification",
        read="id user_id key kind session_id facts created_at on_page in_browser by_email shown_at read_at email_due_at"
        " email_attempts emailed_at email_problem",
        may_insert=True,
        rows=f"{_of_session()} OR {_OWN_ALERT}",
        written=_TELLS_OF_OWN,
        most=1_000,
        alike=f"{_OF_SAME_SESSION} OR held.session_id IS NULL AND added.session_id IS NULL"
        " AND held.user_id = added.user_id AND held.facts ->> 'host' = added.facts ->> 'host'",
    ),
    TableGrant(
        table="notifications_notificationpreference",
        read="id user_id kind on_page in_browser by_email",
        rows=_OF_KNOWN_USER,
    ),
)

# Functions of the database that do for a host what it has no right to do by itself; see the migrations.
FUNCTIONS: Final = (
    "hostaccess_host()",
    "hostaccess_name()",
    "hostaccess_group()",
    "resources_complete_image(bigint, varchar, bigint)",
    "folders_forget_folder(varchar)",
    "compute_finish_resize(varchar, varchar, boolean)",
)
