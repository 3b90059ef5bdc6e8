"""Task files of SkyPilot, as its documentation (Task YAML) describes them."""

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from django.utils.translation import gettext as _

from restapi.plain_yaml import YamlDocument
from specs.formats import task_file
from specs.formats.task_file import TaskOption
from specs.formats.translation import Translation, script_command

MARKS: Final = frozenset({"run", "setup", "num_nodes", "file_mounts", "workdir"})


def is_one(fields: Mapping[str, Any]) -> bool:
    """Return whether these are the fields of such a file."""
    return bool(MARKS & fields.keys()) and "type" not in fields


def translate(document: YamlDocument, made: Translation) -> None:
    """Put what the file says. Raises SpecError."""
    for option in (*task_file.options_of(document), *task_file.options_of(document, "resources")):
        if handler := HANDLERS.get(".".join(map(str, option.place))):
            handler(made, option)
        elif option.place != ("resources",):
            made.leave(option.line, option.text, _notes().get(option.place[-1], ""))
    steps = [str(document.value.get(name) or "").strip() for name in ("setup", "run")]
    if any(steps):
        made.fields["command"] = script_command("\n".join(["#!/bin/bash -e", *filter(None, steps), ""]), made.setup)


def _notes() -> Mapping[str | int, str]:
    files = _("Files are in data folders: mount one with “#GP --mount”, or “mounts” in a spec file.")
    anywhere = _("It runs on the hosts of your resource groups.")
    return {
        **dict.fromkeys(("workdir", "file_mounts", "storage"), files),
        **dict.fromkeys(("cloud", "infra", "region", "zone", "instance_type"), anywhere),
        "secrets": _("Values of secrets are not taken from files; set them in the session."),
        "ports": _("Apps and ports of a running session are opened from its page."),
    }


def _name(made: Translation, option: TaskOption) -> None:
    made.put_name(option.line, option.text, str(option.value))


def _image(made: Translation, option: TaskOption) -> None:
    made.put_image(option.line, option.text, str(option.value).removeprefix("docker:"))


def _accelerators(made: Translation, option: TaskOption) -> None:
    """Read "A100:2", {A100: 2}, or a list, of which the first is taken."""
    value = option.value
    if isinstance(value, list | dict) and len(value) > 1:
        made.leave(option.line, option.text, _("The first of them is taken."))
    if isinstance(value, list):
        value = value[0] if value else ""
    if isinstance(value, dict):
        value = ":".join(map(str, next(iter(value.items()), ("",))))
    model, _colon, count = str(value).partition(":")
    try:
        number = Decimal(count or 1)
    except InvalidOperation:
        number = Decimal(-1)
    if not number.is_finite() or not 0 <= number <= 10**4:
        made.refuse(option.line, option.text, _("Write GPUs such as A100:2."))
    made.put_gpus(option.line, option.text, number, model)


def _spot(made: Translation, option: TaskOption) -> None:
    made.put(option.line, option.text, "preemptible", bool(option.value))


def _program(made: Translation, option: TaskOption) -> None:
    made.put(option.line, str(option.place[-1]), "command", "…")


HANDLERS: Final[Mapping[str, Callable[[Translation, TaskOption], None]]] = {
    **{"name": _name, "num_nodes": task_file.put_nodes, "envs": task_file.put_env, "setup": _program, "run": _program},
    **{"resources.accelerators": _accelerators, "resources.cpus": task_file.put_cpu},
    **{"resources.memory": task_file.put_memory, "resources.image_id": _image, "resources.use_spot": _spot},
}
