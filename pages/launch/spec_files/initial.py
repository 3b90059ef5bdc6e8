"""What the launch form begins with where a spec file asks for sessions."""

from dataclasses import asdict

from pages.launch.beginnings import AMOUNTS, CUSTOM, Initial, span_of
from resources.amounts.units import exact_size_text, fgpu_text
from sessions.launching.requests import LaunchRequest

AS_ASKED = ("name", "count", "cpu", "command", "gpu_model", "is_preemptible", "is_any_group")
SIZES = ("memory", "shared_memory", "cluster_main_memory")


def from_request(asked: LaunchRequest) -> Initial:
    """Return the values of the form's fields."""
    initial: Initial = {name: getattr(asked, name) for name in AS_ASKED}
    initial |= {name: getattr(asked, name) for name in AMOUNTS} | {"preset": CUSTOM}
    if asked.cluster:
        initial |= {f"cluster_{name}": value for name, value in asdict(asked.cluster).items()}
    initial |= {name: exact_size_text(initial[name]) for name in SIZES if initial.get(name) is not None}
    for name in ("fgpu", "cluster_main_fgpu"):
        if initial.get(name) is not None:
            initial[name] = fgpu_text(initial[name])
    return initial | {
        **({"image": asked.image.pk} if asked.image.pk else {"image_name": asked.image.reference}),
        "project": asked.project and asked.project.pk,
        "resource_group": asked.resource_group.pk,
        "other_groups": [group.pk for group in asked.other_groups],
        "environment": list(asked.environment.items()),
        "time_limit": span_of(asked.time_limit),
        "not_before": f"{asked.not_before:%Y-%m-%d %H:%M}" if asked.not_before else "",
        **{
            name: exact_size_text(size) if (size := getattr(asked, name)) else ""
            for name in ("min_gpu_memory", "gpu_memory")
        },
        "depends_on": [f"{kind}:{session.pk}" for session, kind in asked.depends_on.items()],
        "mounts": {mount.folder.pk: (mount.path, bool(mount.is_read_only)) for mount in asked.mounts},
    }
