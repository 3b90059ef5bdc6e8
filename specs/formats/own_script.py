"""Options of `#GP` lines, which are those of `gpuplatform run`, and the fields of the API by their names."""

from collections.abc import Callable, Mapping
from typing import Final

from django.utils.translation import gettext as _
from rest_framework.serializers import CharField

from restapi.plain_yaml import MAX_DIGITS
from sessions.launching.serializers import LaunchRequestSerializer
from specs.formats.options import FLAG, ScriptOption, options_of
from specs.formats.translation import Translation
from specs.problems import SpecError, SpecProblem, did_you_mean, field_at

SHORT: Final = {"e": "env"}
FLAGS: Final = frozenset({"preemptible", "share-gpus", "on-main"})
IN_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {  # what is not called as the field, with - for _
    "group": ("resource_group",),
    "cluster-mode": ("cluster", "mode"),
    "share-gpus": ("cluster", "shares_gpus"),
    "max-restarts": ("cluster", "max_restarts"),
    "main-cpu": ("cluster", "main", "cpu"),
    "main-memory": ("cluster", "main", "memory"),
    "main-fgpu": ("cluster", "main", "fgpu"),
}
OF_ARRAYS: Final[Mapping[str, str]] = {"array": "tasks", "max-parallel": "max_parallel", "retries": "retries"}
# Fields that are a list or an object have no option of their name.
PLAIN: Final[Mapping[str, tuple[str, ...]]] = {
    name.replace("_", "-"): (name,)
    for name in map(str, LaunchRequestSerializer().fields)
    if name not in ("resource_groups", "env", "mounts", "cluster", "command", "image", "depends_on")
}


def translate(text: str, made: Translation) -> None:
    """Put what the `#GP` lines say. Raises SpecError."""
    for option in options_of(text, "GP", SHORT, FLAGS):
        handler = HANDLERS.get(option.name)
        place = IN_FIELDS.get(option.name) or PLAIN.get(option.name)
        if handler:
            handler(made, option)
        elif place:
            made.put(option.line, option.text, place, _value(place, option.value))
        else:
            names = [*PLAIN, *IN_FIELDS, *HANDLERS]
            message = did_you_mean(_("There is no such option."), option.name, names)
            raise SpecError([SpecProblem(option.line, f"#GP {option.text}", message)])


def _value(place: tuple[str, ...], text: str) -> str | int | bool:
    """Return what a text means for the field at a place."""
    if text == FLAG:
        return True
    is_text = isinstance(field_at(LaunchRequestSerializer(), place), CharField)
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS and not is_text else text


def _env(made: Translation, option: ScriptOption) -> None:
    name, equals, value = option.value.partition("=")
    if not name or not equals:
        raise SpecError([SpecProblem(option.line, "#GP --env", _("Write NAME=VALUE."))])
    made.put(option.line, option.text, ("env", name), value)


def _mount(made: Translation, option: ScriptOption) -> None:
    folder, _colon, rest = option.value.partition(":")
    path, _colon, mode = rest.partition(":")
    mounts = made.fields.setdefault("mounts", [])
    mount = {"folder": folder} | ({"path": path} if path else {}) | ({"read_only": mode == "ro"} if mode else {})
    made.put(option.line, option.text, "mounts", [*mounts, mount])
    made.lines["mounts", len(mounts)] = option.line


def _nodes(made: Translation, option: ScriptOption) -> None:
    least, dash, most = option.value.partition("-")
    made.put(option.line, option.text, ("cluster", "size"), _value(("cluster", "size"), least))
    made.fields["cluster"].setdefault("runs_on_all", True)
    if dash:
        made.put(option.line, option.text, ("cluster", "max_size"), _value(("cluster", "max_size"), most))


def _on_main(made: Translation, option: ScriptOption) -> None:
    made.put(option.line, option.text, ("cluster", "runs_on_all"), False)


def _array(made: Translation, option: ScriptOption) -> None:
    made.kind = "array"
    made.put(option.line, option.text, OF_ARRAYS[option.name], option.value)


def _array_number(made: Translation, option: ScriptOption) -> None:
    made.put(option.line, option.text, OF_ARRAYS[option.name], _value(("count",), option.value))


def _image(made: Translation, option: ScriptOption) -> None:
    made.put_image(option.line, option.text, option.value)


def _depends_on(made: Translation, option: ScriptOption) -> None:
    texts = [*made.fields.get("depends_on", []), *option.value.split(",")]
    made.put(option.line, option.text, "depends_on", texts)


HANDLERS: Final[Mapping[str, Callable[[Translation, ScriptOption], None]]] = {
    **{"env": _env, "mount": _mount, "nodes": _nodes, "on-main": _on_main, "image": _image},
    **dict.fromkeys(("depends-on", "dependency"), _depends_on),
    **{"array": _array, "max-parallel": _array_number, "retries": _array_number},
}
