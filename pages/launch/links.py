"""The link that fills the launch form in as a form is filled in, without what may be secret."""

from dataclasses import asdict
from urllib.parse import urlencode

from django.urls import reverse

from pages.launch.beginnings import FLAGS
from pages.launch.forms import LaunchForm
from resources.amounts.units import fgpu_text

TEXTS = ("name", "command", "time_limit", "gpu_model")


def link_to(form: LaunchForm) -> str:
    """Return the path of the review page with what is valid of the form; variables and start times are left out."""
    valid = form.cleaned_data
    query: list[tuple[str, object]] = []
    if image := valid.get("image"):
        query.append(("image", image.reference))
    if group := valid.get("resource_group"):
        query.append(("group", group.name))
    query += [("other_group", other.name) for other in valid.get("other_groups", ())]
    if preset := valid.get("preset"):
        query.append(("preset", preset.name))
    else:
        query += [(name, valid[name]) for name in ("cpu", "memory", "shared_memory") if valid.get(name) is not None]
        if valid.get("fgpu") is not None:
            query.append(("fgpu", fgpu_text(valid["fgpu"])))
    if (count := valid.get("count")) and count > 1:
        query.append(("count", count))
    if cluster := form.cluster:
        query += [
            (f"cluster_{name}", fgpu_text(value) if name == "main_fgpu" else value)
            for name, value in asdict(cluster).items()
            if value is not True and (value or (value is not None and name == "main_fgpu"))
        ]
    query += [(name, text) for name in TEXTS if name not in form.errors and (text := form[name].value())]
    query += [(name, "on") for name in FLAGS if valid.get(name)]
    if least := valid.get("min_gpu_memory"):
        query.append(("min_gpu_memory", least))
    query += [("folder", mount.folder.pk) for mount in valid.get("mounts", ())]
    return f"{reverse('sessions:launch-step', args=['review'])}?{urlencode(query)}"
