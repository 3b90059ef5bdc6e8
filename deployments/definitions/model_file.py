"""`model-definition.yaml`, the file by which Backend.AI serves a model, as drafts of revisions.

The README of `deployments` says what becomes of each of its fields.
"""

import math
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

from deployments.definitions.checking import Checker
from deployments.definitions.drafts import DefinitionError, Draft, Mistake
from deployments.definitions.located import Located, located
from deployments.validation import MAX_NOTE_LENGTH, MODEL_PATH, RANGES
from folders.mount_paths import path_error
from resources.amounts.units import bytes_from, milli_fgpu_from
from restapi.plain_yaml import PlainYamlError
from sessions.launching.validation import MAX_COMMAND_BYTES, environment_error

FILE_NAMES: Final = ("model-definition.yaml", "model-definition.yml")
MAX_MODELS: Final = 20
MOUNTED_AT: Final = "/models"  # by the other platform
DEFAULT_SHELL: Final = "/bin/bash"
MODEL: Final = ("name", "model_path", "service", "environment", "metadata")
SERVICE: Final = ("start_command", "port", "shell", "pre_start_actions", "health_check", "environment")
HEALTH: Final = (
    *("enable", "path", "interval", "max_retries", "max_wait_time", "expected_status_code", "initial_delay"),
)
METADATA: Final = (
    *("author", "title", "version", "created", "last_modified", "description", "task", "category", "architecture"),
    *("framework", "label", "license", "min_resource"),
)
ACTIONS: Final[Mapping[str, Callable[[Checker, Mapping[str, Located], str], str]]] = {
    "run_command": lambda check, args, name: shlex.join(
        check.text(each, at) for each, at in check.items(args.get("command"), f"{name}.command")
    ),
    "mkdir": lambda check, args, name: f"mkdir -p {shlex.quote(check.text(args.get('path'), f'{name}.path'))}",
    "log": lambda check, args, name: f"echo {shlex.quote(check.text(args.get('message'), f'{name}.message'))}",
}


def drafts_of(text: str, source: str) -> list[Draft]:
    """Return a draft of each model of the file. Raises DefinitionError with all that is wrong in it."""
    try:
        root = located(text)
    except PlainYamlError as error:
        raise DefinitionError(source, [Mistake(error.line, "", error.problem)]) from None
    check = Checker()
    models = check.fields(root, "", ("models",), ("models",)).get("models")
    found = list(check.items(models, "models"))
    if models and not found and not check.mistakes:
        check.refuse(models, "models", "Write a list here, each item after a hyphen.")
    if models and len(found) > MAX_MODELS:
        check.refuse(models, "models", f"Write at most {MAX_MODELS} models.")
    drafts = [_Model(check, name).draft(at, source) for at, name in found[:MAX_MODELS]]
    if check.mistakes:
        raise DefinitionError(source, check.mistakes)
    return drafts


class _Model:
    """One model of the file."""

    def __init__(self, check: Checker, name: str) -> None:
        self.check = check
        self.name = name
        self.notes: list[str] = []

    def draft(self, at: Located, source: str) -> Draft:
        """Return its draft; what it says is of no use once there are mistakes."""
        fields = self.check.fields(at, self.name, MODEL, ("name", "model_path"))
        name = self.check.text(fields.get("name"), f"{self.name}.name", 255)
        if "service" not in fields:
            problem = "It has no service, so there is nothing to run."
            return Draft(source=source, name=name, problem=problem)
        own = f"{self.name}.service"
        service = self.check.fields(fields["service"], own, SERVICE, ("start_command", "port"))
        place, mounted, rest = self._place(fields.get("model_path"))
        moved = _mover(place, mounted)
        if place != mounted:
            self.notes.append(f"Folders are not mounted at {place}: where the command says so, it says {mounted}.")
        variables = self._variables(fields.get("environment"), f"{self.name}.environment")
        variables |= self._variables(service.get("environment"), f"{own}.environment")
        variables = {key: moved(value) for key, value in variables.items()}
        if rest:
            variables.setdefault("MODEL_PATH", f"{mounted}/{rest}")
        revision: dict[str, Any] = {
            "command": self._command(service, own, moved),
            "port": self.check.whole(service.get("port"), f"{own}.port", RANGES["port"]),
            "environment": variables,
            "model_path": mounted,
            "health": self._health(service.get("health_check"), f"{own}.health_check"),
        }
        revision |= self._metadata(fields.get("metadata"), f"{self.name}.metadata")
        return Draft(source=source, name=name, revision=revision, notes=self.notes)

    def _place(self, at: Located | None) -> tuple[str, str, str]:
        """Return where the other platform has the folder, where it is mounted here, and where in it the model is."""
        own = f"{self.name}.model_path"
        path = posixpath.join(MOUNTED_AT, self.check.text(at, own, 255))
        if at and ".." in path.split("/"):
            self.check.refuse(at, own, "Write a path without .. in it.")
        path = posixpath.normpath(path)
        is_below = f"{path}/".startswith(f"{MOUNTED_AT}/")
        place, rest = (MOUNTED_AT, path[len(MOUNTED_AT) + 1 :]) if is_below else (path, "")
        return place, MODEL_PATH if path_error(place) else place, rest

    def _command(self, service: Mapping[str, Located], own: str, moved: Callable[[str], str]) -> str:
        """Return what runs, as lines of the shell."""
        start, shell = service.get("start_command"), self.check.text(service.get("shell"), f"{own}.shell", 255)
        lines = list(filter(None, self._actions(service.get("pre_start_actions"), f"{own}.pre_start_actions")))
        if start is None:
            return ""
        if isinstance(start.value, list):
            words = [
                self.check.text(at, name, MAX_COMMAND_BYTES)
                for at, name in self.check.items(start, f"{own}.start_command")
            ]
            if not words:
                self.check.refuse(start, f"{own}.start_command", "This is needed.")
        else:
            line = self.check.text(start, f"{own}.start_command", MAX_COMMAND_BYTES)
            words = [shell or DEFAULT_SHELL, "-c", line]
        return moved(" && ".join([*lines, f"exec {shlex.join(words)}"]))

    def _actions(self, at: Located | None, own: str) -> list[str]:
        found = []
        for each, name in self.check.items(at, own):
            fields = self.check.fields(each, name, ("action", "args"), ("action",))
            action = self.check.text(fields.get("action"), f"{name}.action", 64)
            if action in ACTIONS:
                args = fields.get("args")
                values = args.value if args and isinstance(args.value, Mapping) else {}
                found.append(ACTIONS[action](self.check, values, f"{name}.args"))
            elif action:
                self.notes.append(f"{name}: {action} is not taken over; write it into the command if it is needed.")
        return found

    def _variables(self, at: Located | None, own: str) -> dict[str, str]:
        if at is None:
            return {}
        if not isinstance(at.value, Mapping):
            self.check.refuse(at, own, "Write NAME: VALUE lines here.")
            return {}
        found = {}
        for key, each in at.value.items():
            text = self.check.text(each, f"{own}.{key[:60]}", MAX_COMMAND_BYTES) if each.value is not None else ""
            if error := environment_error({key: text}):
                self.check.refuse(each, f"{own}.{key[:60]}", error)
            found[key] = text
        return found

    def _health(self, at: Located | None, own: str) -> dict[str, Any]:
        """Return the health check; without one it is enough that the port accepts connections."""
        fields = self.check.fields(at, own, HEALTH) if at else {}
        enabled = fields.get("enable")
        if enabled and not isinstance(enabled.value, bool):
            self.check.refuse(enabled, f"{own}.enable", "Write true or false.")
        if not fields or (enabled and enabled.value is False):
            return {"kind": "tcp"}
        path = self.check.text(fields.get("path"), f"{own}.path", 255)
        if at and (not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path):
            message = "A path begins with / and has at most 255 printable ASCII characters, without spaces."
            self.check.refuse(fields.get("path", at), f"{own}.path", message)
        bounds = {
            "interval": RANGES["interval_seconds"],
            "max_wait_time": (0, 3600),
            "max_retries": RANGES["retries"],
            "initial_delay": (0, RANGES["start_seconds"][1]),
            "expected_status_code": (200, 399),
        }
        given = {key: self.check.number(fields.get(key), f"{own}.{key}", bounds[key]) for key in bounds}
        interval = math.ceil(given["interval"] or 10)
        wait = min(interval, RANGES["timeout_seconds"][1])
        if (longer := given["max_wait_time"]) and longer > wait:
            self.notes.append(f"{own}.max_wait_time: a probe is over before the next one, so it gets {wait} seconds.")
        if given["expected_status_code"] not in (None, 200):
            self.notes.append(f"{own}.expected_status_code is not taken over: any status below 400 is healthy.")
        retries, delay = int(given["max_retries"] or 10), given["initial_delay"]
        start = math.ceil(60 if delay is None else delay) + retries * interval
        return {
            "kind": "http",
            "path": path,
            "interval_seconds": interval,
            "timeout_seconds": max(1, min(wait, math.ceil(longer or wait))),
            "retries": retries,
            "start_seconds": min(start, RANGES["start_seconds"][1]),
        }

    def _metadata(self, at: Located | None, own: str) -> dict[str, Any]:
        fields = self.check.fields(at, own, METADATA) if at else {}
        found: dict[str, Any] = {}
        if "title" in fields:
            found["note"] = self.check.text(fields["title"], f"{own}.title")[:MAX_NOTE_LENGTH]
        if left := [key for key in fields if key not in ("title", "min_resource")]:
            self.notes.append(f"{own} is not taken over: {', '.join(left)}.")
        least = fields.get("min_resource")
        if least is None:
            return found
        if not isinstance(least.value, Mapping):
            self.check.refuse(least, f"{own}.min_resource", "Write NAME: VALUE lines here.")
            return found
        for key, each in least.value.items():
            if key not in RESOURCES:
                self.notes.append(f"{own}.min_resource.{key[:60]} is not taken over.")
                continue
            name, read = RESOURCES[key]
            try:
                found[name] = read(str(each.value))
            except ValueError as error:
                self.check.refuse(each, f"{own}.min_resource.{key}", str(error))
        return found


def _cores(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= len(text) <= 4 or int(text) < 1:
        raise ValueError("Choose a whole number from 1 to 9999.")
    return int(text)


RESOURCES: Final[Mapping[str, tuple[str, Callable[[str], int]]]] = {
    "cpu": ("cpu", _cores),
    "mem": ("memory", bytes_from),
    "cuda.shares": ("fgpu", milli_fgpu_from),
    "cuda.device": ("fgpu", milli_fgpu_from),
}


def _mover(place: str, mounted: str) -> Callable[[str], str]:
    """Return a function that replaces one path by another in a text, also at the head of a longer one."""
    pattern = re.compile(rf"(?<![\w./-]){re.escape(place)}(?![\w.-])")
    return lambda text: pattern.sub(mounted, text)
