"""The tables of machines and images.

Used by deployments, endpoints, folders, gpuplatform, hostaccess, hostworker, imports, notifications, operations,
pages, scheduler, sessions and specs.
"""

from resources.models.elastic import COMING, END_BEFORE, NEXT, OVER, ElasticHost, ElasticPool, ElasticState
from resources.models.gpu_weights import WEIGHT_MILLI, GpuWeight
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
    HostHealth,
    HostStatus,
    Installation,
    PlacementChoice,
    Preset,
    QueueOrderChoice,
    ResourceGroup,
    ResourceGroupQuerySet,
)
from resources.models.measurements import FIGURES, GpuMeasurement
