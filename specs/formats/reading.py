"""Reads a text of any of the formats as documents."""

from typing import Any, Final, NamedTuple

from accounts.models import User
from specs.documents import KIND, SpecDocument, check_length, spec_document, yaml_documents
from specs.formats import dstack, own_script, skypilot, slurm
from specs.formats.offer import SpecOffer
from specs.formats.options import is_script
from specs.formats.translation import TranslatedOption, Translation, script_command

COMMENT: Final = 1


class SpecFile(NamedTuple):
    """The documents of a text, and what became of the options of another format, none of a spec file."""

    documents: list[SpecDocument]
    options: list[TranslatedOption]
    is_translated: bool


def read(owner: User, text: str, image: str = "") -> SpecFile:
    """Return the documents of a text; where it names no image, of another format, this one. Raises SpecError."""
    check_length(text)
    text = text.replace("\r\n", "\n")  # as browsers send forms; a script could not run with it
    offer = SpecOffer(owner)
    if is_script(text):
        return _file([_script(offer, text, image)])
    found = yaml_documents(text)
    formats = {id(each): _format_of(each.value) for each in found}
    if not any(formats.values()):
        return SpecFile([spec_document(each) for each in found], [], False)
    made = []
    for each in found:
        translation = Translation(offer)
        reader = formats[id(each)]
        if reader is None:
            return SpecFile([spec_document(each) for each in found], [], False)
        reader.translate(each, translation)
        _default_image(translation, image, each.line)
        made.append((translation, each.line))
    return _file(made)


def _format_of(fields: dict[str, Any]) -> Any:
    """Return the module that reads a document of another system; None for a document of ours."""
    if KIND in fields:
        return None
    return next((each for each in (dstack, skypilot) if each.is_one(fields)), None)


def _script(offer: SpecOffer, text: str, image: str) -> tuple[Translation, int]:
    made = Translation(offer)
    slurm.translate(text, made)
    own_script.translate(text, made)
    _default_image(made, image, COMMENT)
    made.fields["command"] = script_command(text, made.setup)
    return made, COMMENT


def _default_image(made: Translation, image: str, line: int) -> None:
    if image and "image" not in made.fields:
        made.put_image(line, "", image)


def _file(made: list[tuple[Translation, int]]) -> SpecFile:
    documents = [translation.finished(line) for translation, line in made]
    options = [option for translation, _line in made for option in translation.options]
    return SpecFile(documents, sorted(options, key=lambda option: (not option.option, option.line)), True)
