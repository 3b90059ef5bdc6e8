"""What the API returns of spec files."""

from decimal import Decimal

from gpuplatform_client.models.api_model import ApiModel
from gpuplatform_client.models.platform import LaunchEstimate


class SpecDocumentInfo(ApiModel):
    """What became of a document of a spec file, or would."""

    kind: str
    line: int
    name: str = ""
    ids: tuple[str, ...] = ()
    resource_group: str | None = None
    count: int = 0
    cpu: int | None = None
    memory: int | None = None
    fgpu: Decimal | None = None
    gpu_memory: int = 0
    estimate: LaunchEstimate | None = None


class TranslatedOptionInfo(ApiModel):
    """What became of an option of a script or task file: translated, changed or left_out."""

    line: int
    option: str
    became: str = ""
    outcome: str
    note: str = ""


class SpecResult(ApiModel):
    """What became of a spec file, or would; `spec` is what a script or task file says as one."""

    dry_run: bool
    documents: tuple[SpecDocumentInfo, ...]
    translated: tuple[TranslatedOptionInfo, ...] = ()
    spec: str = ""


class SpecText(ApiModel):
    """A spec file."""

    spec: str
