"""The tables of machines and images."""

from resources.models.image_state import BuildState, HostImage, ImageBuild, ImagePull, PullState
from resources.models.images import (
    APP_NAME,
    APP_PATH,
    DECLARED_NAME,
    VARIABLE_NAME,
    App,
    Image,
    ImageQuerySet,
    ImageSource,
    Registry,
)
from resources.models.machines import (
    Gpu,
    GpuReading,
    Host,
    HostStatus,
    Installation,
    PlacementChoice,
    Preset,
    QueueOrderChoice,
    ResourceGroup,
    ResourceGroupQuerySet,
)

__all__ = [
    "APP_NAME",
    "APP_PATH",
    "DECLARED_NAME",
    "VARIABLE_NAME",
    "App",
    "BuildState",
    "Gpu",
    "GpuReading",
    "Host",
    "HostImage",
    "HostStatus",
    "Image",
    "ImageBuild",
    "ImagePull",
    "ImageQuerySet",
    "ImageSource",
    "Installation",
    "PlacementChoice",
    "Preset",
    "PullState",
    "QueueOrderChoice",
    "Registry",
    "ResourceGroup",
    "ResourceGroupQuerySet",
]
