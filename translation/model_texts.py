"""The English texts of models and of their administration: names of fields, help, choices, columns, actions, refusals.

They stand in the classes in plain English. `install` has them translated where they are shown, so that no model or
migration knows of languages; `make messages` and the tests of the catalogues find them by `texts`.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.contrib.admin import AdminSite
from django.db.models import Field, Model
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

_texts: set[str] = set()


def install(configs: Iterable[AppConfig], site: AdminSite) -> None:
    """Have the texts of the product's own models and of their administration translated when they are shown."""
    own_configs = [config for config in configs if Path(config.path).parent == settings.BASE_DIR]
    own = {model for config in own_configs for model in config.get_models()}
    administrations = {model: each for model, each in site._registry.items() if model in own}
    for model in own:
        _install_names(model)
    for model, administration in administrations.items():
        model._meta.app_config.verbose_name = _translated(model._meta.app_config.verbose_name)
        for each in (administration, *administration.inlines):
            _install_administration(each)
        for each in (model, *(inline.model for inline in administration.inlines)):
            _install_names(each)
            for field in each._meta.local_fields + each._meta.local_many_to_many:
                _install_field(field)
            for constraint in each._meta.constraints:  # its own default is translated by Django
                constraint.violation_error_message = _translated(constraint.violation_error_message)


def texts() -> frozenset[str]:
    """Return the texts that are translated by `install`."""
    return frozenset(_texts)


def _translated(text: Any) -> Any:
    """Return the text as one that is translated when it is shown; what is so already, or no text, as it is."""
    if not text or isinstance(text, Promise):
        return text
    _texts.add(str(text))
    return gettext_lazy(str(text))


def _install_names(model: type[Model]) -> None:
    options: Any = model._meta
    if not isinstance(options.verbose_name, Promise):  # the plural is one always, composed of the singular
        options.verbose_name_plural = _translated(str(options.verbose_name_plural))
        options.verbose_name = _translated(options.verbose_name)


def _install_field(field: "Field[Any, Any]") -> None:
    field.verbose_name = _translated(field.verbose_name)
    field.help_text = _translated(field.help_text)
    if field.choices:
        field.choices = [(value, _translated(label)) for value, label in field.flatchoices]


def _install_administration(administration: Any) -> None:
    """Take a ModelAdmin, or the class of an inline one."""
    for name in ("verbose_name", "verbose_name_plural"):
        if getattr(administration, name, None):
            setattr(administration, name, _translated(getattr(administration, name)))
    for function in _functions(administration):
        if described := getattr(function, "short_description", None):
            function.short_description = _translated(described)
    if administration.fieldsets:
        administration.fieldsets = tuple(
            (_translated(title), options | {"description": _translated(options.get("description"))})
            for title, options in administration.fieldsets
        )


def _functions(administration: Any) -> Iterator[Any]:
    """Yield the functions behind columns, read-only fields and actions."""
    given = (getattr(administration, name, None) or () for name in ("list_display", "readonly_fields", "actions"))
    for each in (name for names in given for name in names):
        found = each if callable(each) else getattr(administration, each, None)
        if callable(found):
            yield getattr(found, "__func__", found)
