"""What administrators set up and look after, as collections of the API."""

from typing import Final

from gpuplatform_client.cli.resources.collections import Act, Collection

ALL: Final = "ls show create set rm"
SERVICE: Final = "service host"
COLLECTIONS: Final = (
    Collection(
        "hosts",
        "admin/hosts/",
        "host",
        verbs="show set rm",
        fields="resource_group:GROUP topology is_cordoned:bool cordon_reason",
        searched=True,
        acts={
            "cordon": Act(
                "PATCH {}/", "Place no more sessions on a host.", "cordon_reason", body={"is_cordoned": True}
            ),
            "uncordon": Act("PATCH {}/", "Place sessions on a host again.", body={"is_cordoned": False}),
            "drain": Act(
                "POST /hosts/{name}/drain/",
                "Cordon a host, and have its sessions end at a time, or when they finish; print which.",
                "end_at:WHEN|none reason",
                "text",
                of="sessions",
            ),
            "undrain": Act("DELETE /hosts/{name}/drain/", "Take back the draining of a host."),
        },
    ),
    Collection(
        "admin hosts",
        "admin/hosts/",
        "registered host",
        "name status is_cordoned resource_group cpu memory heartbeat_at",
        "drain_by cordon_reason lost_at health",
        filters="search status resource_group:GROUP is_cordoned:bool",
        verbs="ls",
    ),
    Collection(
        "admin users",
        "admin/users/",
        "user",
        "email policy is_active is_superadmin last_login",
        "first_name last_name share_weight resource_groups projects has_second_factor date_joined",
        key="email",
        verbs=ALL,
        fields="email! first_name last_name policy:POLICY share_weight:N|none is_active:bool is_superadmin:bool"
        " is_staff:bool password:FILE resource_groups:GROUP...",
        filters="search policy is_active:bool is_superadmin:bool",
        searched=True,
        acts={
            "disable": Act("POST {}/disable/", "Disable an account.", "end_sessions:bool"),
            "remove-second-factors": Act("POST {}/remove-second-factors/", "Let somebody who lost them sign in."),
            "import": Act(
                "POST import/",
                "Show what a table of users would change, or with --apply import it.",
                "csv!:FILE apply:bool send_welcome:bool",
                "rows",
                of="rows",
                columns="line email is_new changes errors",
            ),
        },
    ),
    Collection(
        "admin invitations",
        "invitations/",
        "invitation",
        "email policy project created_at expires_at accepted_at",
        key="email",
        verbs="ls show create revoke",
        fields="email! policy:POLICY project:PROJECT|none",
        prints="link",
    ),
    Collection(
        "admin tokens",
        "admin/tokens/",
        "API token",
        "id user name scope created_at expiry last_used_at",
        key="id",
        verbs="ls show revoke",
        filters="search user:EMAIL scope:full|read",
        things="API tokens of all users",
    ),
    Collection(
        "admin keys",
        "admin/ssh-keys/",
        "public key",
        "id user title fingerprint created_at last_used_at",
        key="id",
        verbs="ls show rm",
        filters="search user:EMAIL",
        things="SSH keys of all users",
    ),
    Collection(
        "admin policies",
        "admin/policies/",
        "resource policy",
        "name cpu memory fgpu max_sessions max_pending max_lifetime",
        "max_priority max_parked share_weight preemptible_only allow_sudo allow_public_apps reservations",
        verbs=ALL,
        fields="name! cpu:N|none memory:SIZE|none fgpu:F|none max_sessions:N|none max_pending:N|none"
        " max_per_launch:N|none max_cluster_size:N max_array_tasks:N|none max_priority:N|none max_lifetime:TIME|none"
        " max_extension:TIME"
        " max_parked:N|none max_parked_time:TIME|none share_weight:N preemptible_only:bool allow_sudo:bool"
        " allow_public_apps:bool disk_bytes:SIZE|none disk_files:N|none max_folders:N|none storage_bytes:SIZE|none"
        " storage_files:N|none max_private_images:N|none allow_conversion:bool allow_unlisted_images:bool"
        " require_second_factor:bool",
        filters="search",
        searched=True,
        things="resource policies",
    ),
    Collection(
        "admin groups",
        "admin/resource-groups/",
        "group of hosts",
        "name is_active open_to_all placement queue_order sharing",
        "users projects max_lifetime pending_timeout description",
        verbs=ALL,
        fields="name! description accelerator:VENDOR/CLASS fgpu_per_gpu:N cpu_overcommit:FACTOR sharing:cap|burst"
        " host_loss_grace:TIME use_mps:bool is_active:bool deny_private_networks:bool cluster_host_network:bool"
        " open_to_all:bool users:EMAIL... projects:PROJECT... allow_interactive:bool allow_batch:bool placement"
        " queue_order:fifo|fair ageing:TIME half_life:TIME starvation_limit:TIME reservation_delay:TIME"
        " start_allowance:TIME max_lifetime:TIME|none pending_timeout:TIME|none preemption_grace:TIME"
        " preemptible_charge_percent:N end_gpu_overuse:bool",
        filters="search",
        searched=True,
        things="resource groups",
    ),
    Collection(
        "admin presets",
        "admin/presets/",
        "preset for users",
        "name resource_group cpu memory fgpu",
        "shared_memory id",
        verbs=ALL,
        fields="name! resource_group:GROUP|none cpu:N memory:SIZE shared_memory:SIZE fgpu:F gpu_memory:SIZE",
        filters="search resource_group:GROUP",
        searched=True,
        things="presets",
    ),
    Collection(
        "admin gpu-weights",
        "admin/gpu-weights/",
        "weight of a GPU model",
        "model weight hint",
        "id",
        key="model",
        verbs=ALL,
        fields="model! weight!:FACTOR",
        filters="search",
        searched=True,
        things="weights of GPU models",
    ),
    Collection(
        "admin elastic-pools",
        "admin/elastic-pools/",
        "elastic pool",
        "resource_group is_enabled provider min_hosts max_hosts cost_per_hour failures retry_at",
        "hosts_per_hour cool_down give_up_after back_off max_parked_time problem silent_since silence",
        key="resource_group",
        verbs=ALL,
        fields="resource_group! provider! host_types!:JSON configuration:JSON is_enabled:bool min_hosts:N max_hosts:N"
        " hosts_per_hour:N cost_per_hour:COST|none cool_down:SPAN give_up_after:SPAN back_off:SPAN"
        " max_parked_time:SPAN",
        filters="search resource_group:GROUP",
        searched=True,
        acts={
            "events": Act(
                "GET {}/events/",
                "List what has happened to the hosts of a pool: asked for, came, given back or up, and why.",
                shows="rows",
                columns="at event host reason",
                prints="host",
            )
        },
    ),
    Collection(
        "admin elastic-hosts",
        "admin/elastic-hosts/",
        "host that was made",
        "name resource_group type state reason created_at",
        "identifier cost_per_hour expected_at joined_at idle_since ends_at ended_at",
        filters="search state resource_group:GROUP",
        searched=True,
        things="hosts that were made",
    ),
    Collection(
        "admin idle-rules",
        "admin/idle-rules/",
        "idle rule",
        "name is_enabled action idle_timeout low_use_window warning",
        "low_use_cpu_percent low_use_gpu_percent max_snooze policies projects resource_groups",
        verbs=ALL,
        fields="name! policies:POLICY... projects:PROJECT... resource_groups:GROUP... is_enabled:bool"
        " idle_timeout:TIME|none low_use_window:TIME|none low_use_cpu_percent:N|none low_use_gpu_percent:N|none"
        " warning:TIME max_snooze:TIME action:end|park",
        filters="search",
        searched=True,
        acts={
            "preview": Act(
                "GET {}/preview/",
                "List the sessions that a rule would have ended in the last week.",
                shows="rows",
                of="ended",
                columns="name session owner warned_at ended_at",
            )
        },
    ),
    Collection(
        "admin images",
        "admin/images/",
        "image of the platform",
        "reference environment version is_enabled source size on_hosts",
        "owner is_default min_cpu min_memory min_fgpu build id",
        key="reference",
        verbs=ALL,
        fields="environment! version! reference! description is_enabled:bool is_default:bool owner:EMAIL|none min_cpu:N"
        " min_memory:SIZE min_fgpu:F min_gpu_memory:SIZE accelerators architecture",
        filters="search environment owner:EMAIL is_enabled:bool",
        searched=True,
        acts={
            "build": Act("POST {}/build/", "Queue a build that failed again."),
            "pull": Act("POST {}/pull/", "Have hosts pull an image.", "hosts:HOST..."),
        },
        things="images, those of users included",
    ),
    Collection(
        "admin registries",
        "admin/registries/",
        "registry",
        "name address username has_password is_push_target allows_http",
        verbs=ALL,
        fields="name! address! username password:FILE is_push_target:bool allows_http:bool",
        filters="search",
        searched=True,
        things="registries",
    ),
    Collection(
        "admin storage-roots",
        "admin/storage-roots/",
        "root of folders",
        "name path is_shared is_enabled is_default folders used_bytes",
        "on_hosts key id",
        verbs=ALL,
        fields="name! path! is_shared:bool is_enabled:bool",
        filters="search",
        searched=True,
        acts={
            "make-default": Act("POST {}/make-default/", "Offer a storage root first for new folders."),
            "mark": Act("POST {}/mark/", "Write the marker file into the directory of a storage root."),
        },
        things="storage roots",
    ),
    Collection(
        "admin services",
        "admin/services/",
        "service",
        "name status pid since restarts",
        verbs="",
        acts={
            "ls": Act("GET ", "List the services of the platform.", shows="rows", of="services"),
            "hosts": Act(
                "GET ",
                "List the services on hosts.",
                shows="rows",
                of="hosts",
                columns="host status heartbeat_at gateway_responds",
                prints="host",
            ),
            **{
                verb: Act("POST ", f"{verb.capitalize()} a service.", SERVICE, body={"action": verb})
                for verb in ("start", "stop", "restart")
            },
            "log": Act("GET log/", "Print the newest lines of a service.", "service! lines:N", "text", of="lines"),
        },
    ),
    Collection(
        "admin sessions",
        "admin/sessions/",
        "session of somebody",
        key="id",
        verbs="",
        acts={
            "force-end": Act("POST {session}/force-end/", "End a session at once, without waiting for its host."),
            "requeue": Act("POST {session}/requeue/", "Have a session wait again, for another host if one fits."),
        },
    ),
    Collection(
        "admin configuration",
        "admin/configuration/",
        "configuration",
        key="key",
        verbs="",
        acts={
            "show": Act("GET ", "Print policies, images, groups and others as YAML.", shows="text", of="yaml"),
            "import": Act(
                "POST ",
                "Show what such a file would change, or with --apply import it.",
                "yaml!:FILE apply:bool",
                "rows",
                of="rows",
                columns="section key is_new changes",
            ),
        },
    ),
    Collection(
        "admin audit-log",
        "admin/audit-log/",
        "entry of the audit log",
        "id at actor action object_type object_text",
        "source address object_id changes",
        key="id",
        filters="search actor action object_type object_id source since until",
        things="entries of the audit log, the newest first",
    ),
)
