"""The cards of the launch wizard as values: environments and presets as they are before any script is loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from pages.launch.forms import LaunchForm
from pages.launch.offer import PRIVATE_ENVIRONMENT
from resources.images import builds
from resources.models import Image, Preset


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionOption:
    """A version as the select of its card offers it."""

    image: Image
    is_usable: bool  # False while it is being built for the first time

    @property
    def text(self) -> str:
        """The version; the whole name of an image that the user has made."""
        version = str(self.image) if self.image.owner_id else self.image.version
        return version if self.is_usable else _("%(version)s (not ready)") % {"version": version}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCard:
    """An environment with its versions, the newest first; `shown` is the one that its select has chosen."""

    name: str
    options: tuple[VersionOption, ...]
    shown: Image
    is_chosen: bool

    @property
    def is_private(self) -> bool:
        """True for the card of the images that the user has made."""
        return self.name == PRIVATE_ENVIRONMENT

    @property
    def apps(self) -> str:
        """The titles of the apps of the shown version, which the terminal follows."""
        return "".join(f"{app.title} · " for app in self.shown.apps.all())


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetCard:
    """A preset, why the form's resource group cannot give it, and whether it belongs to another group."""

    preset: Preset
    refusal: str
    is_elsewhere: bool
    is_chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOption:
    """A GPU model as the select offers it; "" is any."""

    model: str
    text: str
    is_chosen: bool


def gpu_model_options(form: LaunchForm, models: Mapping[str, Sequence[str]]) -> list[ModelOption]:
    """Return any, the models that there are with the groups that have them, and one that was asked for otherwise."""
    chosen = str(form["gpu_model"].value() or "").strip()
    texts = {"": _("any")}
    for model, groups in models.items():
        is_everywhere = len(groups) == len(form.offer.groups)
        texts[model] = model if is_everywhere else f"{model} · {', '.join(groups)}"
    texts.setdefault(chosen, chosen)
    return [ModelOption(model=model, text=text, is_chosen=model == chosen) for model, text in texts.items()]


def environment_cards(form: LaunchForm) -> list[LaunchCard]:
    """Return the environments; the one of the form's image is chosen, without one that to begin with."""
    offered = {str(image.pk): image for image in form.offer.images}
    chosen = offered.get(str(form["image"].value())) or form.offer.first_image
    return [
        LaunchCard(
            name=name,
            options=tuple(VersionOption(image=image, is_usable=builds.is_usable(image)) for image in images),
            shown=chosen if chosen in images else next((each for each in images if each.is_default), images[0]),
            is_chosen=chosen in images,
        )
        for name, images in form.offer.environments
    ]


def preset_cards(form: LaunchForm, facts: Mapping[str, Any]) -> list[PresetCard]:
    """Return the presets with what `launch_facts` says of them in the form's resource group."""
    group, chosen = str(form["resource_group"].value()), str(form["preset"].value())
    refusals = {preset.pk: _by_text(facts["presets"][preset.pk]["refusals"]) for preset in form.offer.presets}
    return [
        PresetCard(
            preset=preset,
            refusal=refusals[preset.pk].get(group, ""),
            is_elsewhere=preset.group_id is not None and str(preset.group_id) != group,
            is_chosen=str(preset.pk) == chosen,
        )
        for preset in form.offer.presets
    ]


def _by_text(refusals: Mapping[int, str]) -> dict[str, str]:
    return {str(group_id): text for group_id, text in refusals.items()}
