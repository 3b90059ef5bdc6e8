"""Examples of the bodies that the API takes, for its description; a test holds each to the schema."""

from typing import Any, Final

LAUNCH: Final = {"environment": "Python", "version": "3.11", "cpu": 2, "memory": "4g", "fgpu": "0.5", "name": "train"}
DEPLOYMENT: Final = {
    **{"name": "chat", "image": "gpuplatform/vllm:0.11", "variant": "vllm", "model_folder": {"folder": "llama-8b"}},
    **{"cpu": 4, "memory": "24g", "fgpu": "0.5", "replicas": 2},
}
TEMPLATE: Final = {
    **{"name": "fine-tune", "description": "Tunes our model", "icon": "flask", "color": "green"},
    "parameters": [
        {"name": "lr", "type": "decimal", "default": "0.001", "min": 0, "max": 1, "help": "Learning rate"},
        {"name": "memory", "type": "memory", "default": "16g", "max": "64g"},
    ],
    "launch": {
        **{"kind": "session", "image": "gpuplatform/pytorch:2.13", "cpu": 4, "fgpu": "0.5"},
        **{"memory": "${{ memory }}", "command": "python tune.py --lr ${{ lr }}"},
    },
}

EXAMPLES: Final[dict[str, Any]] = {  # by operation id
    "admin_configuration_create": {"yaml": "format: 1\npolicies:\n- {name: guests, cpu: 2}\n", "apply": True},
    "admin_elastic_pools_create": {
        "resource_group": "cloud",
        "provider": "command",
        "configuration": {"create": ["make-vm"], "list": ["list-vms"], "delete": ["delete-vm"]},
        "host_types": [{"name": "a100", "cpus": 12, "memory": "80g", "gpu_count": 1, "cost_per_hour": "3.5"}],
        "max_hosts": 4,
        "cost_per_hour": "14",
    },
    "admin_elastic_pools_partial_update": {"max_hosts": 8},
    "admin_gpu_weights_create": {"model": "NVIDIA H100 80GB HBM3", "weight": "2.5"},
    "admin_gpu_weights_partial_update": {"weight": "3"},
    "admin_hosts_partial_update": {"is_cordoned": True, "cordon_reason": "A disk is replaced"},
    "admin_idle_rules_create": {"name": "unused", "idle_timeout": "2h", "warning": "30m", "action": "park"},
    "admin_idle_rules_partial_update": {"is_enabled": True},
    "admin_images_create": {
        "environment": "Lab tools",
        "version": "1",
        "reference": "registry.example.com/lab/tools:1",
        "min_memory": "1g",
        "apps": [{"name": "docs", "title": "Documentation", "port": 8000, "command": "python -m http.server 8000"}],
    },
    "admin_images_partial_update": {"is_enabled": False},
    "admin_images_pull_create": {"hosts": ["gpu1"]},
    "admin_policies_create": {"name": "students", "cpu": 8, "memory": "32g", "fgpu": "1", "max_lifetime": "2d"},
    "admin_policies_partial_update": {"fgpu": "0.5"},
    "admin_presets_create": {"name": "half", "cpu": 4, "memory": "16g", "fgpu": "0.5", "resource_group": "default"},
    "admin_presets_partial_update": {"memory": "24g"},
    "admin_registries_create": {
        "name": "Lab",
        "address": "registry.example.com",
        "username": "puller",
        "password": "...",
    },
    "admin_registries_partial_update": {"is_push_target": True},
    "admin_resource_groups_create": {"name": "a100", "fgpu_per_gpu": 4, "users": ["ada@example.org"]},
    "admin_resource_groups_partial_update": {"queue_order": "fair", "projects": ["vision"]},
    "admin_storage_roots_create": {"name": "fast", "path": "/srv/fast", "is_shared": False},
    "admin_storage_roots_partial_update": {"is_enabled": False},
    "admin_services_create": {"action": "restart", "service": "scheduler"},
    "admin_users_create": {"email": "ada@example.org", "first_name": "Ada", "policy": "students"},
    "admin_users_disable_create": {"end_sessions": True},
    "admin_users_import_create": {"csv": "email,first_name,policy\nada@example.org,Ada,students\n"},
    "admin_users_partial_update": {"share_weight": 200, "resource_groups": ["a100"]},
    "announcements_create": {
        "text": "The hosts restart on Friday at 18:00 UTC.",
        "level": "warning",
        "ends_at": "2030-01-04T18:00:00Z",
    },
    "announcements_partial_update": {"ends_at": "2030-01-04T19:00:00Z"},
    "arrays_cancel_create": {"tasks": "1-500"},
    "arrays_create": {
        **LAUNCH,
        "command": "python train.py --lr $lr --seed $seed",
        "tasks": {"grid": {"lr": [0.1, 0.01], "seed": {"from": 0, "to": 9}}},
        "max_parallel": 4,
        "retries": 1,
    },
    "arrays_partial_update": {"max_parallel": 8},
    "arrays_retry_create": {"tasks": "3,7"},
    "auth_token_create": {"email": "ada@example.org", "password": "..."},
    "deployments_create": DEPLOYMENT,
    "deployments_new_placement_create": DEPLOYMENT,
    "deployments_partial_update": {"replicas": 4, "strategy": "canary", "canary_steps": [5, 25, 50]},
    "deployments_placement_create": {"replicas": 4},
    "deployments_promote_create": {"to_all": False},
    "deployments_revisions_create": {"model_folder": {"folder": "llama-8b-tuned"}, "note": "Tuned on our tickets"},
    "deployments_scaling_partial_update": {"min_replicas": 1, "max_replicas": 4, "idle_seconds": 900},
    "deployments_scaling_rules_create": {"metric": "outstanding", "target": 16},
    "deployments_scaling_rules_partial_update": {"paused": True},
    "deployments_hosts_update": {"hosts": ["models.example.org"]},
    "deployments_tokens_create": {"name": "web shop", "days": 90, "rate_per_minute": 600, "monthly_requests": 100_000},
    "deployments_tokens_partial_update": {"monthly_requests": 200_000},
    "folders_create": {"name": "mnist"},
    "folders_entries_create": {"path": "results/run-1", "parents": True},
    "folders_entries_move_create": {"path": "model.pt", "new_path": "results/run-1/model.pt"},
    "folders_partial_update": {"name": "mnist-2"},
    "folders_restore_create": {"name": "mnist-old"},
    "folders_shares_create": {"user": "grace@example.org", "read_only": True},
    "folders_shares_partial_update": {"read_only": False},
    "folders_text_update": {"text": "epochs: 10\n"},
    "folders_trash_restore_create": {"path": "results/model.pt"},
    "hosts_drain_create": {"end_at": "2030-01-04T18:00:00Z", "reason": "New GPUs"},
    "invitations_create": {"email": "ada@example.org", "policy": "students"},
    "me_partial_update": {"first_name": "Ada", "last_name": "Lovelace"},
    "me_password_create": {"password": "...", "new_password": "..."},
    "notifications_preferences_update": [{"kind": "ENDED", "on_page": True, "in_browser": False, "by_email": True}],
    "projects_create": {"name": "vision", "description": "Image models", "resource_groups": ["a100"]},
    "projects_invitations_create": {"email": "ada@example.org"},
    "projects_members_create": {"email": "ada@example.org", "role": "manager"},
    "projects_members_partial_update": {"role": "member"},
    "projects_partial_update": {"share_weight": 200},
    "sessions_apps_create": {"public": False},
    "sessions_apps_share_create": {"expires": "2030-01-04T18:00:00Z", "note": "For the reviewers"},
    "sessions_convert_create": {"name": "tools", "tag": "1", "description": "With ffmpeg"},
    "sessions_create": {**LAUNCH, "command": "python train.py", "time_limit": "4h"},
    "sessions_estimate_create": LAUNCH,
    "sessions_extend_create": {"by": "1h"},
    "sessions_partial_update": {"name": "train-2"},
    "sessions_resize_create": {"fgpu": "0.25"},
    "sessions_snooze_create": {"by": "1h"},
    "sessions_terminate_many": {"ids": ["owfy2i4csglu5gkz"]},
    "specs_create": {
        "text": "kind: session\nname: train\nimage: gpuplatform/pytorch:2.13\ncpu: 4\nmemory: 16g\nfgpu: 0.5\n",
        "dry_run": True,
    },
    "ssh_keys_create": {"key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA... ada@laptop", "title": "laptop"},
    "templates_create": TEMPLATE,
    "templates_launch_create": {"values": {"lr": "0.01", "memory": "32g"}},
    "templates_make_current_create": {"version": 1},
    "templates_partial_update": {"description": "Tunes our model on tickets", "project": "vision"},
    "tokens_create": {"name": "ci", "scope": "read", "days": 90},
    "import_credentials_create": {"name": "GitHub", "host": "github.com", "kind": "ssh_key"},
    "imports_create": {"address": "https://github.com/karpathy/nanoGPT", "folder_name": "nanogpt"},
    "imports_launch_create": LAUNCH,
    "webhooks_create": {"url": "https://ci.example.org/hooks/gpu", "event_types": ["session.terminated"]},
    "webhooks_partial_update": {"url": "https://ci.example.org/hooks/gpu-2"},
}
PROBLEM: Final = {
    "type": "about:blank",
    "title": "Bad Request",
    "status": 400,
    "detail": "Invalid: cpu.",
    "code": "invalid",
    "errors": {"cpu": ["Ensure this value is greater than or equal to 1."]},
}


def add_examples(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return the OpenAPI description with the examples; a hook of drf-spectacular."""
    for operations in result["paths"].values():
        for operation in operations.values():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            example = EXAMPLES.get(operation["operationId"])
            if content is not None and example is not None:
                content["examples"] = {"Example": {"value": example}}
            for media in operation["responses"].get("400", {}).get("content", {}).values():
                media["examples"] = {"Problem": {"value": PROBLEM}}
    return result
