"""The forms of a template: that which its parameters make, and that by which it is saved."""

from collections.abc import Mapping
from typing import Any, Final

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from rest_framework.exceptions import ValidationError

from accounts.models import Project, User
from pages.launch.offer import LaunchOffer
from restapi.plain_yaml import PlainYamlError, YamlDocument, documents
from specs import template_launches
from specs.documents import MAX_BYTES
from specs.kinds import TemplateSpecRequest
from specs.launch_templates.bodies import COLORS, ICONS, secret_names
from specs.launch_templates.parameters import BOOLEAN, CHOICE, FOLDER, MAX_TEXT, TemplateParameter
from specs.launch_templates.services import content_of, holder_fields
from specs.models import DESCRIPTION_LENGTH, NAME_LENGTH, LaunchTemplate, TemplateVersion
from specs.problems import messages
from specs.services import SpecOutcome
from specs.writing import plain_text

EVERYBODY: Final = "everybody"
PROJECT: Final = "project:"


class FillForm(forms.Form):
    """The parameters of a version of a template."""

    def __init__(self, user: User, version: TemplateVersion, data: Any = None) -> None:
        super().__init__(data, prefix="value")
        self._user, self._version = user, version
        content = content_of(version)
        secrets = secret_names(content["launch"])
        for each in template_launches.parameters_of(content):
            self.fields[each.name] = self._field(each, is_secret=each.name in secrets)

    def launch(self, *, is_dry: bool = False) -> SpecOutcome | None:
        """Launch the template; None if that is refused, with messages at the fields."""
        try:
            return template_launches.launch(self._user, self._version, self.cleaned_data, is_dry=is_dry)
        except ValidationError as error:
            for (where, *place), text in messages(error.detail):
                name = str(place[0]) if place else ""
                is_at_field = where == template_launches.VALUES and name in self.fields
                shown = ".".join(str(part) for part in place if part != "non_field_errors")
                self.add_error(name if is_at_field else None, text if is_at_field or not shown else f"{shown}: {text}")
            return None

    def _field(self, parameter: TemplateParameter, *, is_secret: bool) -> forms.Field:
        shown: dict[str, Any] = {
            **{"label": parameter.name, "required": False, "initial": parameter.default},
            "help_text": " · ".join(filter(None, (parameter.help, _bounds(parameter)))),
        }
        if parameter.type == BOOLEAN:
            return forms.BooleanField(**shown, widget=forms.CheckboxInput(attrs={"class": "form-check-input"}))
        if parameter.type in (CHOICE, FOLDER):
            is_optional = not parameter.required or parameter.default is None
            empty = [("", _("Choose ...") if parameter.required else _("none"))] if is_optional else []
            return forms.CharField(
                **shown, widget=forms.Select({"class": "form-select"}, empty + self._choices(parameter))
            )
        attrs = {"class": "form-control", "autocomplete": "off", "spellcheck": "false"}
        if parameter.required and parameter.default is None:
            attrs["aria-required"] = "true"
        widget = forms.PasswordInput({**attrs, "autocomplete": "new-password"}) if is_secret else forms.TextInput(attrs)
        return forms.CharField(**shown, max_length=MAX_TEXT, strip=False, widget=widget)

    def _choices(self, parameter: TemplateParameter) -> list[tuple[str, str]]:
        if parameter.type == CHOICE:
            return [(each, each) for each in parameter.choices]
        offered = [each.folder for each in LaunchOffer(self._user).folders if not each.is_automatic]
        own = {each.name for each in offered if each.owner_id == self._user.pk}
        named = [(each.name if each.name in own and each.owner_id else each.pk, each.name) for each in offered]
        return sorted(named, key=lambda pair: pair[1])


def _bounds(parameter: TemplateParameter) -> str:
    numbers = {"low": parameter.min, "high": parameter.max}
    if parameter.min is not None and parameter.max is not None:
        return _("From %(low)s to %(high)s.") % numbers
    if parameter.min is not None:
        return _("At least %(low)s.") % numbers
    return _("At most %(high)s.") % numbers if parameter.max is not None else ""


class TemplateForm(forms.Form):
    """What a template says, and whose it is."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=NAME_LENGTH)
    description = forms.CharField(label=gettext_lazy("Description"), max_length=DESCRIPTION_LENGTH, required=False)
    icon = forms.ChoiceField(label=gettext_lazy("Picture"), choices=[(each, each) for each in ICONS])
    color = forms.ChoiceField(label=gettext_lazy("Colour"), choices=[(each, each) for each in COLORS])
    holder = forms.ChoiceField(label=gettext_lazy("Who may launch it"), required=False)
    launch = forms.CharField(label=gettext_lazy("What is launched"), max_length=MAX_BYTES)
    parameters = forms.CharField(label=gettext_lazy("Parameters"), max_length=MAX_BYTES, required=False)
    version = forms.IntegerField(required=False, widget=forms.HiddenInput)  # that the form began with

    def __init__(self, user: User, data: Any = None, initial: Any = None, target: LaunchTemplate | None = None) -> None:
        super().__init__(data, initial=initial)
        self._user, self._target = user, target
        projects = Project.objects.managed_by(user).order_by("name").values_list("name", flat=True)
        choices = [("", _("only me"))] + [
            (f"{PROJECT}{each}", _("members of %(name)s") % {"name": each}) for each in projects
        ]
        if user.is_superuser:
            choices.append((EVERYBODY, _("everybody")))
        self.fields["holder"].widget = forms.Select({"class": "form-select"}, choices)
        field = self.fields["holder"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices
        for name in ("name", "description"):
            self.fields[name].widget.attrs |= {"class": "form-control", "autocomplete": "off"}
        for name in ("launch", "parameters"):
            attrs = {"class": "form-control font-monospace", "rows": 12, "spellcheck": "false"}
            self.fields[name].widget = forms.Textarea(attrs)

    def clean_launch(self) -> YamlDocument:
        """Return what is launched, with its lines."""
        return _read(self.cleaned_data["launch"], dict)

    def clean_parameters(self) -> YamlDocument:
        """Return the parameters, with their lines."""
        return _read(self.cleaned_data["parameters"] or "[]", list)

    def clean(self) -> None:
        """Refuse to change what somebody else has changed meanwhile; saved again, the form replaces that."""
        read = self.cleaned_data.get("version")
        if self._target and read and read != self._target.version:
            self.data = {name: self.data.get(name) for name in self.data} | {"version": self._target.version}
            text = _(
                "Somebody has saved version %(number)s since you opened this page: saved again, yours replaces it."
            )
            raise forms.ValidationError(text % {"number": self._target.version})

    def save(self) -> LaunchTemplate | None:
        """Save the template; None if that is refused, with messages at the fields."""
        said = self.cleaned_data
        texts = {name: said[name].value for name in ("launch", "parameters")}
        holder = said["holder"]
        fields = {name: said[name] for name in ("name", "description", "icon", "color")} | texts
        fields |= {"everybody": holder == EVERYBODY, "project": holder[len(PROJECT) :] if PROJECT in holder else ""}
        try:
            return TemplateSpecRequest(self._user, fields).save(self._target)
        except ValidationError as error:
            for (name, *place), text in messages(error.detail):
                if name in texts and place:
                    line = said[name].line_of(tuple(place))
                    where = ".".join(str(part) for part in place if not isinstance(part, int))
                    text = _("Line %(line)s, %(where)s: %(text)s") % {"line": line, "where": where, "text": text}
                name = "holder" if name in ("everybody", "project") else name
                self.add_error(str(name) if name in self.fields else None, text)
            return None

    @staticmethod
    def shown(name: str, launch: Mapping[str, Any], parameters: list[Any]) -> dict[str, Any]:
        """Return the values of the fields of what a new template begins with."""
        texts = {"launch": plain_text(launch), "parameters": plain_text(parameters) if parameters else ""}
        return {"name": name, "icon": ICONS[0], "color": COLORS[0], **texts}

    @classmethod
    def shown_of(cls, template: LaunchTemplate) -> dict[str, Any]:
        """Return the values of the fields of a template."""
        said, held = content_of(template.current), holder_fields(template)
        holder = EVERYBODY if held["everybody"] else f"{PROJECT}{held['project']}" if held["project"] else ""
        shown = {name: getattr(template, name) for name in ("name", "description", "icon", "color")}
        texts = cls.shown("", said["launch"], list(said.get("parameters", ())))
        return texts | shown | {"holder": holder, "version": template.version}


def _read(text: str, kind: type[Any]) -> YamlDocument:
    try:
        [found, *others] = documents(text) or [YamlDocument(1)]
    except PlainYamlError as error:
        text = _("Line %(line)s: %(text)s") % {"line": error.line, "text": error.problem}
        raise forms.ValidationError(text) from error
    if others or not isinstance(found.value, kind):
        raise forms.ValidationError(
            _("Write named fields, such as “kind: session”.") if kind is dict else _("Write a list of parameters.")
        )
    return found
