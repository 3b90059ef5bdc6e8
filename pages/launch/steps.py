"""The pages of the launch wizard, and which of them holds which field. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

ARRAY: Final = ("array_kind", "array_tasks", "array_count", "array_seed", "array_max_parallel", "array_retries")


@dataclass(frozen=True, slots=True, kw_only=True)
class WizardStep:
    """One page of the wizard."""

    slug: str
    title: str | Promise
    fields: tuple[str, ...] = ()  # whose messages stand on it

    def shows(self, name: str) -> bool:
        """Return whether the message of this name, as `LaunchForm.messages` names them, stands on the page."""
        return name in self.fields or ("mounts" in self.fields and name.startswith("mount-"))


STEPS: Final = (
    WizardStep(
        slug="environment",
        title=_("Environment"),
        fields=("from_template", "from_import", "import_installs", "image", "image_name", "name", "environment"),
    ),
    WizardStep(slug="folders", title=_("Data folders"), fields=("mounts",)),
    WizardStep(
        slug="resources",
        title=_("Resources"),
        fields=(
            *("project", "resource_group", "preset", "cpu", "memory", "shared_memory", "fgpu", "gpu_memory", "count"),
            *(
                "cluster_size",
                "cluster_max_size",
                "cluster_mode",
                "cluster_shares_gpus",
                "cluster_runs_on_all",
                "cluster_max_restarts",
                "cluster_main_cpu",
                "cluster_main_memory",
                "cluster_main_fgpu",
            ),
            *("command", *ARRAY, "time_limit", "not_before", "is_preemptible", "depends_on"),
            *("other_groups", "is_any_group", "gpu_model", "min_gpu_memory"),
        ),
    ),
    WizardStep(slug="review", title=_("Review")),
)
BY_SLUG: Final = {step.slug: step for step in STEPS}


def beside(step: WizardStep) -> tuple[WizardStep | None, WizardStep | None]:
    """Return the pages before and after one; None where there is none."""
    at = STEPS.index(step)
    return (STEPS[at - 1] if at else None), next(iter(STEPS[at + 1 :]), None)


def first_with(names: Iterable[str]) -> WizardStep:
    """Return the first page that shows one of these messages; the last page without."""
    known = list(names)
    return next((step for step in STEPS if any(step.shows(name) for name in known)), STEPS[-1])
