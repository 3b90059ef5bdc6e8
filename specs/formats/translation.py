"""A document that is made of a file of another system, and what became of each of that file's options."""

import re
import shlex
from dataclasses import dataclass, field
from decimal import ROUND_UP, Decimal
from enum import StrEnum
from typing import Any, Final, NamedTuple, NoReturn

from django.utils.translation import gettext as _

from folders.names import HOME
from resources.amounts.units import GIB, MIB
from restapi.plain_yaml import Place, YamlDocument
from sessions.launching.validation import MAX_NAME_LENGTH, name_error
from specs.documents import SpecDocument
from specs.formats.offer import SpecOffer
from specs.problems import SpecError, SpecProblem

DEFAULT_MEMORY: Final = 2 * GIB
NOT_OF_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")
FGPU_STEP: Final = Decimal("0.01")
LISTED_MODELS: Final = 20


class OptionOutcome(StrEnum):
    """What became of an option."""

    TRANSLATED = "translated"
    CHANGED = "changed"
    LEFT_OUT = "left_out"


class TranslatedOption(NamedTuple):
    """An option of the file, the field that it became, and why it is not the same."""

    line: int
    option: str
    became: str
    outcome: OptionOutcome
    note: str


@dataclass(slots=True)
class Translation:
    """Collects the fields of one document; the methods put what an option means, or say why it means nothing."""

    offer: SpecOffer
    kind: str = "session"
    fields: dict[str, Any] = field(default_factory=dict)
    lines: dict[Place, int] = field(default_factory=dict)
    options: list[TranslatedOption] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)  # lines of the shell before the program

    def put(self, line: int, option: str, place: str | Place, value: Any, note: str = "") -> None:
        """Set a field; a `note` says what is other than it was asked for."""
        whole = (place,) if isinstance(place, str) else place
        inner = self.fields
        for at, name in enumerate(whole[:-1], 1):
            self.lines.setdefault(whole[:at], line)
            inner = inner.setdefault(str(name), {})
        inner[str(whole[-1])] = value
        self.lines[whole] = line
        became = f"{'.'.join(map(str, whole))}: {value}"
        self.options.append(
            TranslatedOption(line, option, became, OptionOutcome.CHANGED if note else OptionOutcome.TRANSLATED, note)
        )

    def leave(self, line: int, option: str, note: str = "") -> None:
        """Say that an option has no effect."""
        note = note or _("There is nothing like it here.")
        self.options.append(TranslatedOption(line, option, "", OptionOutcome.LEFT_OUT, note))

    def refuse(self, line: int, option: str, message: str) -> NoReturn:
        """Raise SpecError: without this option it would be something else."""
        raise SpecError([SpecProblem(line, option, message)])

    def put_name(self, line: int, option: str, name: str) -> None:
        """Name the session, in the letters that names have."""
        valid = NOT_OF_NAMES.sub("-", name).strip("-._")[:MAX_NAME_LENGTH]
        if name_error(valid):
            valid = f"{valid or 'a'}-job"
        self.put(
            line, option, "name", valid, "" if valid == name else _("Names have 4 to 64 letters, digits and . _ -")
        )

    def put_image(self, line: int, option: str, name: str) -> None:
        """Name the image by its reference."""
        image = self.offer.image(name)
        self.put(line, option, "image", image.reference if image else name)

    def put_gpus(self, line: int, option: str, count: Decimal, model: str = "") -> None:
        """Ask for so many GPUs of each session, of this model."""
        size = self.offer.fgpu_per_gpu(self.fields.get("resource_group"))
        exact = count * size
        fgpu = exact.quantize(FGPU_STEP, ROUND_UP)
        note = _("Rounded up to steps of 0.01.") if fgpu != exact else ""
        if not note and size != 1:
            note = _("A GPU is %(count)d fGPU there.") % {"count": size}
        self.put(line, option, "fgpu", f"{fgpu.normalize():f}", note)
        if model and self.kind == "deployment":
            self.leave(line, option, _("Deployments do not choose a model of GPUs: name a resource group."))
        elif model and count:
            found = self.offer.gpu_model(model)
            if found is None:
                there = ", ".join(self.offer.gpu_models[:LISTED_MODELS]) or "-"
                self.refuse(line, option, _("There is no GPU of this model. Allowed: %(names)s.") % {"names": there})
            self.put(line, option, "gpu_model", found)

    def put_memory(self, line: int, option: str, size: int, note: str = "") -> None:
        """Ask for so many bytes of memory."""
        self.put(line, option, "memory", f"{-(-size // MIB)}m", note)

    def put_directory(self, line: int, option: str, path: str) -> None:
        """Have the program run in a directory."""
        self.setup.append(f"cd {shlex.quote(path)}")
        self.options.append(TranslatedOption(line, option, "command: cd", OptionOutcome.TRANSLATED, ""))

    def finished(self, line: int) -> SpecDocument:
        """Return the document, with the amounts that a session has where none are named."""
        if "preset" not in self.fields:
            image = self.offer.image(str(self.fields.get("image", "")))
            usual = _("Not said in the file.")
            if "cpu" not in self.fields:
                self.put(line, "", "cpu", max(1, image.min_cpu if image else 0), usual)
            if "memory" not in self.fields:
                self.put_memory(line, "", max(DEFAULT_MEMORY, image.min_memory if image else 0), usual)
        return SpecDocument(self.kind, self.fields, YamlDocument(line, self.fields, self.lines))


def script_command(script: str, setup: list[str]) -> str:
    """Return the line of the shell that runs a script, with the interpreter of its first line, else with bash."""
    first = script.split("\n", 1)[0]
    interpreter = first[2:].strip() if first.startswith("#!") else "/bin/bash"
    steps = ["f=$(mktemp)", f'printf %s {shlex.quote(script)} > "$f"', *setup]
    return " && ".join([*steps, f'exec {interpreter} "$f"'])


def home_path(path: str) -> str:
    """Return a path of another system's home directory as one of a session."""
    return re.sub(r"^(~|\$HOME)(?=/|$)", HOME, path)
