"""Fills templates in and launches them: a spec document like any other, whose problems are told at the parameters."""

from collections.abc import Collection, Mapping
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils.translation import gettext as _
from rest_framework.exceptions import ValidationError

from accounts.models import User
from restapi.plain_yaml import YamlDocument
from sessions.models import Session
from specs import services
from specs.documents import KIND, SpecDocument
from specs.launch_templates.bodies import parameter_of
from specs.launch_templates.filling import filled, names_at
from specs.launch_templates.parameters import TemplateParameter
from specs.launch_templates.services import content_of
from specs.models import LaunchTemplate, TemplateLaunch, TemplateVersion
from specs.problems import SpecError
from specs.services import SpecOutcome

VALUES, LAUNCH = "values", "launch"


def parameters_of(content: Mapping[str, Any]) -> list[TemplateParameter]:
    """Return the parameters of what a version says."""
    return [parameter_of(each) for each in content.get("parameters", ())]


def launch(user: User, version: TemplateVersion, values: Mapping[str, Any], *, is_dry: bool = False) -> SpecOutcome:
    """Launch what a version says with these values, as this user, or say what that would be.

    Raises ValidationError: what concerns a parameter is at `values`, other problems at `launch`.
    """
    content = content_of(version)
    fields = filled(content[LAUNCH], _checked(parameters_of(content), values))
    document = SpecDocument(fields.pop(KIND), fields, YamlDocument(1))
    with transaction.atomic():
        try:
            [outcome] = services.carry_out(user, [document], is_dry=is_dry)
        except SpecError as error:
            raise ValidationError(_by_parameter(content[LAUNCH], error)) from error
        if outcome.ids:
            ids = outcome.ids if document.kind != "array" else ()  # an array is counted alone
            record(version, ids, is_deployment=document.kind == "deployment")
    return outcome


def record(version: TemplateVersion, ids: Collection[str], *, is_deployment: bool) -> None:
    """Remember from which version these sessions, or this deployment, were launched."""
    origin = {"template": version.template, "name": version.template.name, "number": version.number}
    if is_deployment:  # as the version says: the current one may launch something else
        rows = [TemplateLaunch(**origin, deployment_id=each) for each in ids]
    else:
        rows = [TemplateLaunch(**origin, session_id=each) for each in ids]
    TemplateLaunch.objects.bulk_create(rows)
    LaunchTemplate.objects.filter(pk=version.template_id).update(launches=F("launches") + 1)


def record_named(user: User, named: str, sessions: Collection[Session]) -> None:
    """Remember that sessions were launched from "ID:NUMBER" of a template; without effect where that is gone."""
    template_id, _colon, number = named.partition(":")
    versions = TemplateVersion.objects.filter(template__in=LaunchTemplate.objects.visible_to(user))
    if number.isdecimal() and (version := versions.filter(template=template_id, number=number[:9]).first()):
        record(version, [each.pk for each in sessions], is_deployment=False)


def origin_of(session: Session) -> TemplateLaunch | None:
    """Return from which template a session was launched; None without."""
    return TemplateLaunch.objects.filter(session=session.main if session.cluster_id else session).first()


def _checked(parameters: Collection[TemplateParameter], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each parameter. Raises ValidationError."""
    known = {each.name for each in parameters}
    problems: dict[str, Any] = {name: [_("There is no such parameter.")] for name in values if name not in known}
    found = {}
    for each in parameters:
        try:
            found[each.name] = each.value_of(values.get(each.name))
        except ValidationError as error:
            problems[each.name] = error.detail
    if problems:
        raise ValidationError({VALUES: problems})
    return found


def _by_parameter(fields: Mapping[str, Any], error: SpecError) -> dict[str, Any]:
    """Return the problems by the parameter that stands at their field, else by the field."""
    found: dict[str, dict[str, list[str]]] = {}
    for problem in error.problems:
        named = names_at(fields, problem.field.split("."))
        place = (VALUES, named[0]) if named else (LAUNCH, problem.field or "non_field_errors")
        found.setdefault(place[0], {}).setdefault(place[1], []).append(problem.message)
    return found
