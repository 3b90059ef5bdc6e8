"""Tasks, services and development environments of dstack, as its reference (.dstack.yml) describes them."""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from django.utils.translation import gettext as _

from restapi.plain_yaml import YamlDocument
from specs.formats import task_file
from specs.formats.task_file import TaskOption
from specs.formats.translation import Translation, home_path, script_command

Handlers = Mapping[str, Callable[[Translation, TaskOption], None]]

TYPES: Final = frozenset({"task", "service", "dev-environment"})
SIZE: Final = re.compile(r"[0-9.]+\s*[MGT]B(\.\..*)?", re.IGNORECASE)
COUNT: Final = re.compile(r"[0-9]{1,4}(\.\.[0-9]*)?")
SECONDS: Final = re.compile(r"(?P<number>[0-9]{1,6})(?P<unit>[smhdw]?)")
UNITS: Final = {"s": 1, "": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def is_one(fields: Mapping[str, Any]) -> bool:
    """Return whether these are the fields of such a file."""
    return isinstance(fields.get("type"), str) and fields["type"] in TYPES


def translate(document: YamlDocument, made: Translation) -> None:
    """Put what the file says. Raises SpecError."""
    made.kind = "deployment" if document.value["type"] == "service" else "session"
    of_type = SERVICE if made.kind == "deployment" else SESSION
    resources = task_file.options_of(document, "resources")
    for option in (*task_file.options_of(document), *resources):
        name = ".".join(map(str, option.place))
        if handler := HANDLERS.get(name) or of_type.get(name):
            handler(made, option)
        elif name not in ("type", "resources"):
            made.leave(option.line, option.text, _notes().get(name, ""))
    commands = document.value.get("commands")
    if isinstance(commands, list) and commands:
        script = "\n".join(["#!/bin/bash -e", *map(str, commands), ""])
        made.fields["command"] = script_command(script, made.setup)


def _notes() -> Mapping[str, str]:
    anywhere = _("It runs on the hosts of your resource groups.")
    files = _("Files are in data folders: mount one with “#GP --mount”, or “mounts” in a spec file.")
    return {
        **dict.fromkeys(("backends", "regions", "fleets", "instance_types", "availability_zones"), anywhere),
        **dict.fromkeys(("files", "repos", "volumes"), files),
        "ports": _("Apps and ports of a running session are opened from its page."),
        "ide": _("VS Code opens from the session's page."),
        "python": _("Name an image: it has its Python."),
        "scaling": _("How a deployment scales is set once it is there."),
    }


def _name(made: Translation, option: TaskOption) -> None:
    if made.kind == "deployment":
        made.put(option.line, option.text, "name", option.value)
    else:
        made.put_name(option.line, option.text, str(option.value))


def _image(made: Translation, option: TaskOption) -> None:
    made.put_image(option.line, option.text, str(option.value))


def _commands(made: Translation, option: TaskOption) -> None:
    made.put(option.line, option.text, "command", "…")


def _gpu(made: Translation, option: TaskOption) -> None:
    """Read 2, "A100:2", "A100:40GB:2", "24GB", or an object with name, memory and count."""
    value = option.value
    if isinstance(value, dict):
        parts = [str(value[name]) for name in ("name", "memory", "count") if value.get(name) is not None]
    else:
        parts = str(value).split(":")
    count = next((part for part in parts if COUNT.fullmatch(part)), "1")
    size = next((part for part in parts if SIZE.fullmatch(part)), "")
    model = next((part for part in parts if part not in (count, size)), "")
    number, _unit, _note = task_file.least_of(made, option, count)
    made.put_gpus(option.line, option.text, Decimal(number), model)
    if size and number and made.kind == "session":
        least, unit, note = task_file.least_of(made, option, size)
        made.put(option.line, option.text, "min_gpu_memory", f"{least}{unit}".lower().removesuffix("b"), note)


def _shared_memory(made: Translation, option: TaskOption) -> None:
    least, unit, note = task_file.least_of(made, option)
    made.put(option.line, option.text, "shared_memory", f"{least}{unit or 'g'}".lower().removesuffix("b"), note)


def _max_duration(made: Translation, option: TaskOption) -> None:
    found = SECONDS.fullmatch(str(option.value))
    if found is None:
        made.leave(option.line, option.text, _("Your policy has the limits then."))
    else:
        made.put(option.line, option.text, "time_limit", int(found["number"]) * UNITS[found["unit"]])


def _directory(made: Translation, option: TaskOption) -> None:
    made.put_directory(option.line, option.text, home_path(str(option.value)))


def _spot(made: Translation, option: TaskOption) -> None:
    made.put(option.line, option.text, "preemptible", option.value in ("spot", "auto"))


def _port(made: Translation, option: TaskOption) -> None:
    port = str(option.value).rpartition(":")[2]
    made.put(option.line, option.text, "port", int(port) if port.isdecimal() and len(port) < 6 else option.value)


def _replicas(made: Translation, option: TaskOption) -> None:
    number, _unit, note = task_file.least_of(made, option)
    made.put(option.line, option.text, "replicas", int(number), note)


def _auth(made: Translation, option: TaskOption) -> None:
    made.put(option.line, option.text, "public", option.value is False)


HANDLERS: Final[Handlers] = {
    **{"name": _name, "image": _image, "commands": _commands, "env": task_file.put_env},
    **{"working_dir": _directory, "resources.cpu": task_file.put_cpu, "resources.memory": task_file.put_memory},
    **{"resources.gpu": _gpu, "resources.shm_size": _shared_memory},
}
SESSION: Final[Handlers] = {
    "nodes": task_file.put_nodes,
    "max_duration": _max_duration,
    "spot_policy": _spot,
}
SERVICE: Final[Handlers] = {
    "port": _port,
    "replicas": _replicas,
    "auth": _auth,
}
