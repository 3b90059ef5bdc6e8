"""English texts of groups, images and registries."""

from typing import Final

from django.utils.translation import gettext_noop as _

TEXTS: Final = (
    # resources/amounts/capacity.py
    _("No host of this group has a GPU."),
    _("The largest host of this group has %(largest)s."),
    _("No host of this group has %(wanted)s together."),
    _("Hosts of this group with %(with_rest)s have no GPU."),
    _("Hosts of this group with %(with_rest)s have at most %(beside)s."),
    _("Shared memory is at least %(least)s."),
    _("Shared memory is part of the memory and cannot be above %(memory)s."),
    # resources/images/builds.py
    _("%(image)s could not be built. An administrator can have it built again."),
    _("%(image)s is not ready yet: %(value)s."),
    # resources/registries/references.py
    _("%(reference)s is not an image reference; write for example registry.example.com/team/image:1.0"),
    _("%(reference)s names no tag; write for example %(reference2)s:1.0"),
    _("Docker Hub is written %(address)s"),
    _("%(address)s is not the address of a registry; write host and port alone, such as registry.example.com:5000"),
    # resources/registries/client.py
    _("%(address)s has this image for no Linux machine"),
    _("%(address)s deletes no images; see its settings"),
    _("%(address)s does not answer: %(error)s"),
    _("%(address)s gives no usable answer: %(error)s"),
    _("%(address)s asks for a log-in that is not supported"),
    # resources/registries/credentials.py
    _(
        "The password of registry %(registry)s was stored under another SECRET_KEY. Add that key to SECRET_KEY_FALLBACKS, or enter the password again under Administration, Registries."
    ),
    # resources/gpus/shares.py
    _("never more GPU time than the share"),
    _("GPU time that others leave idle may be used as well"),
    # resources/gpus/tiers.py
    _("the whole device, shared with nobody"),
    _("an instance cut by the hardware"),
    _("memory limited by the driver, compute by the hook"),
    _("memory limited by the hook, compute by MPS"),
    _("limited by the hook, watched by the host"),
    _("this host lends whole GPUs only"),
    # resources/amounts/units.py
    _("%(text)s is not a size; write for example 4g or 512m."),
    _("%(text)s has no unit; write for example 4g or 512m."),
    _("%(text)s is not a number of fGPU; write for example 0.5."),
    _("%(text)s is not a length of time; write for example 90m, 4h or 2d."),
)
