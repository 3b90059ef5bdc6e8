"""Drafts: what a file in a folder proposes for a revision. They fill a form or a request; nothing is made of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What one model proposes; `revision` has fields of a RevisionRequest, and those of a HealthCheck in `health`."""

    source: str  # path of the file in the folder
    name: str
    revision: dict[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()  # what cannot be taken over, a sentence each
    problem: str = ""  # why it cannot be deployed; then `revision` is empty
    flavors: Sequence[str] = ()  # of MLflow
    run: str = ""  # of MLflow: its name or id
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """What is wrong in a file."""

    line: int
    field: str  # such as models[0].service.port; empty: the file itself
    message: str

    def __str__(self) -> str:
        place = f"line {self.line}, {self.field}" if self.field else f"line {self.line}"
        return f"{place}: {self.message}"


class DefinitionError(Exception):
    """A definition file is wrong; nothing was made of it."""

    def __init__(self, source: str, mistakes: Sequence[Mistake]) -> None:
        super().__init__(f"{source}: {'; '.join(map(str, mistakes))}")
        self.source = source
        self.mistakes = sorted(mistakes)
