"""Saves templates in versions, changes which of them is launched, and deletes templates."""

from collections.abc import Mapping
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _
from rest_framework.exceptions import ValidationError
from rest_framework.serializers import Serializer

from accounts import audit
from accounts.models import Project, User
from resources import clock
from specs.documents import KIND, check_length, spec_document, yaml_documents
from specs.launch_templates.bodies import ParameterBody, TemplateBody
from specs.models import LaunchTemplate, TemplateVersion
from specs.problems import SpecError
from specs.writing import spec_text

DOCUMENT: Final = "template"
MAX_TEMPLATES: Final = 200  # of a user, of a project, and of everybody
MAX_VERSIONS: Final = 100  # of a template; the oldest go first
HOLDERS: Final = ("project", "everybody")  # not part of what a version says
SHOWN: Final = ("name", "description", "icon", "color")


def content_of(version: TemplateVersion) -> dict[str, Any]:
    """Return what a version says, by the fields of `TemplateBody`."""
    return dict(spec_document(yaml_documents(version.text)[0]).fields)


def holder_of(actor: User, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return whose a template is to be. Raises ValidationError where the actor may not say so."""
    name, is_everybodys = body["project"], body["everybody"]
    if name and is_everybodys:
        raise ValidationError({"everybody": [_("A template is of a project or of everybody.")]})
    if is_everybodys and not actor.is_superuser:
        raise ValidationError({"everybody": [_("Only superadmins share a template with everybody.")]})
    project = Project.objects.managed_by(actor).filter(name=name).first() if name else None
    if name and project is None:
        raise ValidationError({"project": [_("You manage no project of this name.")]})
    return {"owner": None if project or is_everybodys else actor, "project": project}


def find(actor: User, body: Mapping[str, Any]) -> LaunchTemplate | None:
    """Return the template of the same name and holder. Raises ValidationError as `holder_of`."""
    return LaunchTemplate.objects.filter(name=body["name"], **holder_of(actor, body)).first()


def save(actor: User, body: Mapping[str, Any], target: LaunchTemplate | None = None) -> LaunchTemplate:
    """Make a template of valid fields of `TemplateBody`, or a version of `target`. Raises ValidationError."""
    text = _text(body)
    is_moved = target is None or holder_fields(target) != {name: body[name] for name in HOLDERS}
    holder = holder_of(actor, body) if is_moved else {}
    values = {**{name: body[name] for name in SHOWN}, **holder, "kind": body["launch"][KIND]}
    try:
        with transaction.atomic():
            return _changed(actor, target, values, text) if target else _made(actor, values, text)
    except IntegrityError as error:
        raise ValidationError({"name": [_("There is a template of this name.")]}) from error


def make_current(template: LaunchTemplate, version: TemplateVersion, *, actor: User) -> None:
    """Have another version be launched. Raises ValidationError where it, or the template, is gone."""
    content = TemplateBody().fields
    said = content_of(version)
    values = {name: said.get(name, getattr(content[name], "default", "")) for name in SHOWN if name != "name"}
    with transaction.atomic():
        lock(template)
        if not template.versions.filter(pk=version.pk).exists():
            raise ValidationError({"version": [_("This version is gone: there are newer ones.")]})
        with _recorded(actor, template):
            _update(template, {**values, "kind": said["launch"][KIND], "version": version.number})


def lock(template: LaunchTemplate) -> None:
    """Read the template anew and lock it, before what it says is changed. Raises ValidationError where it is gone."""
    rows = LaunchTemplate.objects.select_for_update(of=("self",)).select_related("owner", "project")
    try:
        template.refresh_from_db(from_queryset=rows)
    except LaunchTemplate.DoesNotExist:
        raise ValidationError([_("This template is deleted.")]) from None


def delete(template: LaunchTemplate, *, actor: User) -> None:
    """Delete a template; what was launched from it goes on, and still says its name."""
    with _recorded(actor, template, "deleted"):
        template.delete()


def holder_fields(template: LaunchTemplate) -> dict[str, Any]:
    """Return whose a template is, by the fields of `TemplateBody`."""
    return {"project": template.project.name if template.project else "", "everybody": template.is_for_everybody}


def _text(body: Mapping[str, Any]) -> str:
    """Return what is stored, which reads as the same. Raises ValidationError."""
    said = {name: value for name, value in _said(TemplateBody(), body).items() if name not in HOLDERS}
    if "parameters" in said:
        said["parameters"] = [_said(ParameterBody(), each) for each in said["parameters"]]
    try:
        text = spec_text([(DOCUMENT, said)])
        check_length(text)
        yaml_documents(text)
    except (SpecError, ValueError) as error:
        found = error.problems[0].message if isinstance(error, SpecError) else str(error)
        raise ValidationError({"launch": [found]}) from error
    return text


def _said(kind: Serializer[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are not the defaults."""
    defaults = {
        name: field.default() if callable(field.default) else field.default for name, field in kind.fields.items()
    }
    return {name: value for name, value in values.items() if value is not None and value != defaults[name]}


def _made(actor: User, values: Mapping[str, Any], text: str) -> LaunchTemplate:
    others = LaunchTemplate.objects.filter(owner=values["owner"], project=values["project"])
    if others.count() >= MAX_TEMPLATES:
        raise ValidationError([_("There are %(count)s templates: delete one first.") % {"count": MAX_TEMPLATES}])
    made = LaunchTemplate(**values, created_at=clock.now(), updated_at=clock.now())
    if made.owner_id == actor.pk:
        made.save(force_insert=True)
    else:
        with audit.act(actor, "added") as rows:
            made.save(force_insert=True)
            rows.append(made)
    TemplateVersion.objects.create(template=made, number=1, text=text, author=actor, created_at=clock.now())
    return made


def _changed(actor: User, target: LaunchTemplate, values: Mapping[str, Any], text: str) -> LaunchTemplate:
    lock(target)  # versions are numbered one by one
    newest = target.versions.latest("number")
    number = newest.number if newest.text == text else newest.number + 1
    with _recorded(actor, target):
        if number != newest.number:
            made = TemplateVersion(template=target, number=number, text=text, author=actor, created_at=clock.now())
            made.save(force_insert=True)
            old = target.versions.values_list("pk", flat=True)[MAX_VERSIONS:]
            TemplateVersion.objects.filter(pk__in=list(old)).delete()
        _update(target, {**values, "version": number})
    return target


def _update(template: LaunchTemplate, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(template, name, value)
    template.updated_at = clock.now()
    template.save(update_fields=[*values, "updated_at"])


def _recorded(actor: User, template: LaunchTemplate, action: str = "changed") -> Any:
    """Record what is done to a template that others use, or that is another's."""
    return audit.act_for_other(template.owner_id, actor, action, template)
