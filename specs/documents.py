"""The documents of a spec file: a kind, the fields of the API, and the line of each."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.utils.translation import gettext as _

from restapi.plain_yaml import Place, PlainYamlError, YamlDocument, documents
from specs.problems import SpecError, SpecProblem

MAX_BYTES: Final = 64 * 1024
MAX_DOCUMENTS: Final = 50
KIND: Final = "kind"
# Of names of variables that hold secrets.
SECRET: Final = re.compile("token|secret|passw|passphrase|credential|private|auth|(^|_)key($|_)|apikey", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SpecDocument:
    """A document that asks for one thing; `kind` is None where it says none."""

    kind: Any
    fields: Mapping[str, Any]
    source: YamlDocument  # has the lines

    @property
    def name(self) -> str:
        """Return the name that it gives, or ""."""
        name = self.fields.get("name")
        return name if isinstance(name, str) else ""

    def problem(self, place: Place, message: str) -> SpecProblem:
        """Return what is wrong at a place."""
        return SpecProblem(self.source.line_of(place), ".".join(map(str, place)), message)


def check_length(text: str) -> None:
    """Raise SpecError for a text that is too long."""
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise SpecError([SpecProblem(1, "", _("A spec file has at most %(size)s KiB.") % {"size": MAX_BYTES // 1024})])


def yaml_documents(text: str) -> list[YamlDocument]:
    """Return the documents of the text, each of which has named fields. Raises SpecError."""
    try:
        found = documents(text)
    except PlainYamlError as error:
        raise SpecError([SpecProblem(error.line, "", error.problem)]) from error
    if not found:
        raise SpecError([SpecProblem(1, "", _("There is nothing in this file."))])
    if len(found) > MAX_DOCUMENTS:
        text = _("A spec file has at most %(count)s documents.") % {"count": MAX_DOCUMENTS}
        raise SpecError([SpecProblem(found[MAX_DOCUMENTS].line, "", text)])
    if problems := [SpecProblem(each.line, "", _no_fields()) for each in found if not isinstance(each.value, dict)]:
        raise SpecError(problems)
    return found


def spec_document(document: YamlDocument) -> SpecDocument:
    """Return the document as one that has a kind."""
    fields = dict(document.value)
    return SpecDocument(fields.pop(KIND, None), fields, document)


def _no_fields() -> str:
    return _("Write named fields, such as “kind: session”.")
