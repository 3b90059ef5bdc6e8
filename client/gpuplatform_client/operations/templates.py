"""The operations of the API on launch templates as values, without I/O; see `operations`."""

from collections.abc import Mapping
from typing import Any

from gpuplatform_client.http.api_requests import (
    FIRST_PAGE,
    ApiOperation,
    ResultPage,
    idempotency_key,
    nothing,
    one,
    page,
    path_part,
)
from gpuplatform_client.models.specs import SpecDocumentInfo
from gpuplatform_client.models.templates import TemplateInfo, TemplateVersionInfo


def templates(*, q: str = "", name: str = "") -> ApiOperation[ResultPage[TemplateInfo]]:
    """Yield the templates that may be launched, the most used first; `q` is part of name or description."""
    query = FIRST_PAGE | {key: text for key, text in {"q": q, "name": name}.items() if text}
    return ApiOperation("GET", "templates/", page(TemplateInfo), query)


def template(template_id: str) -> ApiOperation[TemplateInfo]:
    """Return a template, with what it asks for and its spec file."""
    return ApiOperation("GET", _path(template_id), one(TemplateInfo))


def create_template(fields: Mapping[str, Any]) -> ApiOperation[TemplateInfo]:
    """Make a template of the fields of a spec file of the kind template."""
    return ApiOperation("POST", "templates/", one(TemplateInfo), body=dict(fields), headers=idempotency_key())


def change_template(template_id: str, fields: Mapping[str, Any]) -> ApiOperation[TemplateInfo]:
    """Make a version in which what is left out stays as it is."""
    return ApiOperation("PATCH", _path(template_id), one(TemplateInfo), body=dict(fields))


def template_versions(template_id: str) -> ApiOperation[ResultPage[TemplateVersionInfo]]:
    """Yield the versions of a template, the newest first."""
    return ApiOperation("GET", _path(template_id, "versions/"), page(TemplateVersionInfo), FIRST_PAGE)


def template_version(template_id: str, number: int) -> ApiOperation[TemplateVersionInfo]:
    """Return a version with what it says."""
    return ApiOperation("GET", _path(template_id, f"versions/{number}/"), one(TemplateVersionInfo))


def use_template_version(template_id: str, number: int) -> ApiOperation[TemplateInfo]:
    """Have this version be launched from now on."""
    return ApiOperation("POST", _path(template_id, "make-current/"), one(TemplateInfo), body={"version": number})


def launch_template(
    template_id: str, values: Mapping[str, Any], *, version: int | None = None, dry_run: bool = False
) -> ApiOperation[SpecDocumentInfo]:
    """Launch a template with these values of its parameters, or say what that would be."""
    body = {"values": dict(values), "version": version, "dry_run": dry_run}
    path = _path(template_id, "launch/")
    return ApiOperation("POST", path, one(SpecDocumentInfo), body=body, headers=idempotency_key())


def delete_template(template_id: str) -> ApiOperation[None]:
    """Delete a template; what was launched from it goes on."""
    return ApiOperation("DELETE", _path(template_id), nothing)


def _path(template_id: str, rest: str = "") -> str:
    return f"templates/{path_part(template_id)}/{rest}"
