"""What a template says, as API and spec files take it."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from accounts.serializers import StrictSerializer
from restapi.plain_yaml import MAX_DEPTH
from specs.documents import KIND, SECRET
from specs.launch_templates.filling import PLACEHOLDER, VARIABLES, names_in
from specs.launch_templates.parameters import BOOLEAN, CHOICE, TEXTS, TYPES, TemplateParameter
from specs.models import DESCRIPTION_LENGTH, NAME_LENGTH

LAUNCHED: Final = ("session", "cluster", "array", "deployment")
ICONS: Final = ("play", "gpu", "cpu", "notebook", "lab", "flask", "chart", "code", "globe", "database", "image", "box")
COLORS: Final = ("blue", "green", "orange", "red", "purple", "grey")
MAX_PARAMETERS: Final = 40
MAX_CHOICES: Final = 100


@extend_schema_field({"oneOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}], "nullable": True})
class ScalarField(serializers.JSONField):
    """A text, number or truth value."""

    def to_internal_value(self, data: Any) -> Any:
        """Return the value. Raises ValidationError for lists and objects."""
        if isinstance(data, Mapping | list):
            raise ValidationError(_("Write one value."))
        return data


class ParameterBody(StrictSerializer):
    """What a template asks for."""

    name = serializers.RegexField(r"^[a-z][a-z0-9_]{0,31}\Z", help_text="Small letters, digits and _, such as lr")
    type = serializers.ChoiceField(choices=list(TYPES))
    help = serializers.CharField(default="", allow_blank=True, max_length=200)
    required = serializers.BooleanField(default=True)  # type: ignore[assignment]  # of the class, not the field
    default = ScalarField(default=None, allow_null=True, help_text="null: there is none")
    min = ScalarField(default=None, allow_null=True, help_text="The least that is taken, of numbers and amounts")
    max = ScalarField(default=None, allow_null=True, help_text="The most that is taken, of numbers and amounts")
    choices = serializers.ListField(
        child=serializers.CharField(max_length=200), default=list, max_length=MAX_CHOICES, help_text="Of a choice"
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse bounds and choices that make no sense, and a default that they exclude."""
        parameter = parameter_of(attrs)
        is_choice = attrs["type"] == CHOICE
        if is_choice != bool(attrs["choices"]):
            text = _("Say what may be chosen.") if is_choice else _("Only a choice has these.")
            raise ValidationError({"choices": [text]})
        for name in ("min", "max"):
            if attrs[name] is not None and attrs["type"] in (*TEXTS, BOOLEAN):
                raise ValidationError({name: [_("Only numbers and amounts have bounds.")]})
            _check(name, parameter.compared, attrs[name])
        _check("default", parameter.value_of, attrs["default"])
        return attrs


def _check(name: str, validate: Callable[[Any], Any], value: Any) -> None:
    try:
        if value is not None:
            validate(value)
    except ValidationError as error:
        raise ValidationError({name: error.detail}) from error


def parameter_of(attrs: Mapping[str, Any]) -> TemplateParameter:
    """Return the parameter of valid fields."""
    return TemplateParameter(**{**attrs, "choices": tuple(attrs.get("choices", ()))})


class TemplateBody(StrictSerializer):
    """A launch template: what is launched, with `${{ name }}` where the value of a parameter goes."""

    name = serializers.CharField(max_length=NAME_LENGTH)
    description = serializers.CharField(default="", allow_blank=True, max_length=DESCRIPTION_LENGTH)
    icon = serializers.ChoiceField(choices=ICONS, default=ICONS[0])
    color = serializers.ChoiceField(choices=COLORS, default=COLORS[0])
    parameters = serializers.ListField(child=ParameterBody(), default=list, max_length=MAX_PARAMETERS)
    launch = serializers.DictField(
        help_text="A document of a spec file of the kind session, cluster, array or deployment"
    )
    project = serializers.CharField(
        default="", allow_blank=True, help_text="Whose members may launch it; without, it is your own"
    )
    everybody = serializers.BooleanField(default=False, help_text="May launch it; only superadmins say so")

    def validate_launch(self, value: dict[str, Any]) -> dict[str, Any]:
        """Refuse what no spec file can hold."""
        if _is_deeper(value, MAX_DEPTH - 1):
            raise ValidationError(_("This is nested too deeply."))
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Hold what is launched against the parameters."""
        launch, parameters = attrs["launch"], [parameter_of(each) for each in attrs["parameters"]]
        names = [each.name for each in parameters]
        if doubled := [name for name, count in Counter(names).items() if count > 1]:
            raise ValidationError({"parameters": [_("“%(name)s” is there twice.") % {"name": doubled[0]}]})
        if launch.get(KIND) not in LAUNCHED:
            raise ValidationError({"launch": {KIND: [_("Allowed: %(names)s.") % {"names": ", ".join(LAUNCHED)}]}})
        problems = {
            name: [_("There is no parameter “%(name)s”.") % {"name": unknown[0][:64]}]
            for name, value in launch.items()
            if (unknown := [each for each in names_in(value) if each not in names])
        }
        problems |= _stored_secrets(launch, {each.name: each for each in parameters})
        if problems:
            raise ValidationError({"launch": problems})
        if unused := set(names) - set(names_in(launch)):
            text = _("Nothing that is launched names it: write %(name)s there.")
            raise ValidationError({"parameters": [text % {"name": f"${{{{ {min(unused)} }}}}"}]})
        return attrs


def _is_deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(not levels or _is_deeper(each, levels - 1) for each in inner)


def _stored_secrets(launch: Mapping[str, Any], parameters: Mapping[str, TemplateParameter]) -> dict[str, Any]:
    """Return the problems of variables that hold secrets, by their names."""
    variables = launch.get(VARIABLES)
    text = _("A template stores no secrets: write a parameter without a default here.")
    problems = {}
    for name, value in variables.items() if isinstance(variables, Mapping) else ():
        asked = PLACEHOLDER.fullmatch(value) if isinstance(value, str) else None
        named = parameters.get(asked[1].strip()) if asked else None
        if SECRET.search(name) and (named is None or named.default is not None):
            problems[name] = [text]
    return {VARIABLES: problems} if problems else {}


def secret_names(launch: Mapping[str, Any]) -> set[str]:
    """Return the parameters whose values are secrets."""
    variables = launch.get(VARIABLES)
    found = variables.items() if isinstance(variables, Mapping) else ()
    return {each for name, value in found if SECRET.search(name) for each in names_in(value)}
