"""Launch templates as the API returns and takes them."""

from datetime import datetime
from typing import Any

from gpuplatform_client.models.api_model import ApiModel


class TemplateParameterInfo(ApiModel):
    """What a template asks for."""

    name: str
    type: str
    help: str | None = None
    required: bool | None = None
    default: Any = None
    min: Any = None
    max: Any = None
    choices: tuple[str, ...] | None = None


class TemplateVersionInfo(ApiModel):
    """A version of a template; what it says is there where one is asked for."""

    number: int
    author: str | None = None
    created_at: datetime
    parameters: tuple[TemplateParameterInfo, ...] = ()
    spec: str = ""


class TemplateInfo(ApiModel):
    """A launch template; what its current version says is there where one is asked for."""

    id: str
    name: str
    description: str = ""
    kind: str
    owner: str | None = None
    project: str | None = None
    everybody: bool = False
    version: int
    launches: int = 0
    updated_at: datetime
    current: TemplateVersionInfo | None = None

    @property
    def holder(self) -> str:
        """Whose it is."""
        return self.owner or self.project or "everybody"
