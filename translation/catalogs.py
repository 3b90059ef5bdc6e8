"""The catalogues of texts: extraction from the sources, update of locale/, and compilation. Needs Babel.

`locale/<language>/LC_MESSAGES/` holds django.po (templates and Python) and djangojs.po (scripts). What the platform
reads is kept in the repository, so that no set-up needs gettext: django.mo, and static/js/translations/<language>.js.
"""

import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_javascript, extract_python
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.utils.translation.template import templatize

from translation import model_texts
from translation.composed_sentences import composed_sentences
from translation.english_texts import WRITTEN, written
from translation.text_pattern import PLACEHOLDER

ROOT: Final = Path(__file__).resolve().parent.parent
LANGUAGES: Final = ("ko",)  # beside English, which is the text in the sources
SCRIPTS: Final = ROOT / "static" / "js" / "translations"
# From a function's name to the numbers of its arguments that are texts; (n, "c") is a context.
PYTHON_KEYWORDS: Final = {
    "gettext": None,
    "gettext_lazy": None,
    "gettext_noop": None,
    "_": None,
    "ngettext": (1, 2),
    "ngettext_lazy": (1, 2),
    "ngettext_noop": (1, 2),
    "pgettext": ((1, "c"), 2),
    "pgettext_lazy": ((1, "c"), 2),
    "npgettext": ((1, "c"), 2, 3),
}
SCRIPT_KEYWORDS: Final = {"gettext": None, "ngettext": (1, 2)}
_EXCLUDED: Final = {"tests", "migrations", "node_modules", ".venv", "var", "bench", "locale", "build"}

Text = str | Sequence[str]  # a text, or its forms for numbers
Found = tuple[str | None, str | tuple[str, str]]  # (context, text or its two forms)


def source_files(pattern: str) -> list[Path]:
    """Return the product's files of this pattern, without tests, migrations and what is installed or built."""
    found = (path.relative_to(ROOT) for path in ROOT.glob(pattern))
    return sorted(path for path in found if not _EXCLUDED.intersection(path.parts))


def template_files() -> list[Path]:
    """Return the templates: pages, parts of pages and mails."""
    return [*source_files("templates/**/*.html"), *source_files("templates/**/*.txt")]


def script_files() -> list[Path]:
    """Return the scripts of the pages."""
    return source_files("static/js/*.js")


def python_files() -> list[Path]:
    """Return the product's modules."""
    return source_files("**/*.py")


def extract(domain: str) -> Catalog:
    """Return the texts of a domain, "django" or "djangojs", with the files that have them."""
    catalog = Catalog(fuzzy=False)
    if domain == "djangojs":
        for path in script_files():
            _add(catalog, path, _javascript_texts((ROOT / path).read_bytes()))
        return catalog
    for path in template_files():
        _add(catalog, path, _template_texts((ROOT / path).read_text(), str(path)))
    for path in python_files():
        _add(catalog, path, _python_texts((ROOT / path).read_text()))
    _add(catalog, WRITTEN.relative_to(ROOT), ((None, text) for text in written()))
    for text, path in sentences().items():
        _add(catalog, path, ((None, text),))
    _add(catalog, Path("models and their administration"), ((None, text) for text in sorted(model_texts.texts())))
    return catalog


def sentences() -> dict[str, Path]:
    """Return the sentences that modules compose in English; the same words once, however the values are named."""
    by_words: dict[str, tuple[str, Path]] = {}
    for path in python_files():
        for text in composed_sentences(path, (ROOT / path).read_text()):
            by_words.setdefault(PLACEHOLDER.sub("%", text), (text, path))
    return dict(by_words.values())


def sentences_json() -> str:
    """Return what the platform reads of them."""
    return json.dumps(sorted(sentences()), indent=0) + "\n"


def update(language: str, domain: str) -> Catalog:
    """Bring a language's catalogue to the texts of the sources, write it, and return it."""
    path = po_path(language, domain)
    catalog = read(language, domain) if path.exists() else Catalog(locale=language)
    catalog.update(extract(domain), no_fuzzy_matching=True)
    catalog.obsolete.clear()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(po_text(catalog))
    return catalog


def po_path(language: str, domain: str) -> Path:
    """Return where a catalogue lies."""
    return ROOT / "locale" / language / "LC_MESSAGES" / f"{domain}.po"


def read(language: str, domain: str) -> Catalog:
    """Return a catalogue of locale/."""
    with po_path(language, domain).open("rb") as file:
        return read_po(file, locale=language, domain=domain)


def po_text(catalog: Catalog) -> str:
    """Return the text of a .po file: sorted, without line numbers or dates, so that it changes only with the texts."""
    buffer = io.BytesIO()
    write_po(buffer, catalog, width=120, sort_output=True, omit_header=True, include_lineno=False)
    return f"{_HEADER.format(plural=catalog.plural_forms.rstrip(';'))}\n{buffer.getvalue().decode()}"


def compiled(language: str, domain: str) -> bytes:
    """Return the compiled catalogue: a .mo file, or for scripts a script that sets `globalThis.translations`."""
    catalog = read(language, domain)
    if domain == "djangojs":
        return _script(catalog).encode()
    catalog.creation_date = catalog.revision_date = datetime.fromtimestamp(0, UTC)  # equal texts give equal files
    buffer = io.BytesIO()
    write_mo(buffer, catalog)
    return buffer.getvalue()


def compiled_path(language: str, domain: str) -> Path:
    """Return where the compiled catalogue lies."""
    return SCRIPTS / f"{language}.js" if domain == "djangojs" else po_path(language, domain).with_suffix(".mo")


def untranslated(catalog: Catalog) -> list[str]:
    """Return the texts without a sure translation, and those whose translation lacks a placeholder or has another."""
    return [
        _one(message.id)
        for message in catalog
        if message.id and (message.fuzzy or not _is_translated(message.id, message.string))
    ]


_HEADER: Final = """msgid ""
msgstr ""
"Content-Type: text/plain; charset=utf-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Plural-Forms: {plural};\\n"
"""
_PLACEHOLDER: Final = re.compile(r"(?:%\(|\{)(\w+)(?:\)[sd]|\})")  # of the % operator or of str.format


def _is_translated(text: Text, translation: Text | None) -> bool:
    forms = _forms(translation or "")
    names = {name for form in _forms(text) for name in _PLACEHOLDER.findall(form)}
    return bool(forms) and all(form and names.issuperset(_PLACEHOLDER.findall(form)) for form in forms)


def _forms(text: Text) -> Sequence[str]:
    return (text,) if isinstance(text, str) else text


def _one(text: Text) -> str:
    return _forms(text)[0]


def _add(catalog: Catalog, path: Path, found: Iterable[Found]) -> None:
    for context, text in found:
        flags = ["python-format"] if any(_PLACEHOLDER.search(form) for form in _forms(text)) else []
        catalog.add(text, locations=[(str(path), 0)], context=context, flags=flags)


def _template_texts(source: str, origin: str) -> Iterator[Found]:
    # Lines of a template are indented at will, which Python's tokenizer refuses; other text than calls is X-ed out.
    lines = (line.strip() for line in templatize(source, origin=origin).splitlines())
    yield from _python_texts("\n".join(line for line in lines if "gettext" in line or "_(" in line))


def _python_texts(source: str) -> Iterator[Found]:
    if not any(f"{keyword}(" in source for keyword in PYTHON_KEYWORDS):
        return
    for _, function, arguments, _ in extract_python(
        io.BytesIO(source.encode()), PYTHON_KEYWORDS, [], {"encoding": "utf-8"}
    ):
        yield from _texts(function, arguments)


def _javascript_texts(source: bytes) -> Iterator[Found]:
    for _, function, arguments, _ in extract_javascript(
        io.BytesIO(source), SCRIPT_KEYWORDS, [], {"parse_template_string": True}
    ):
        yield from _texts(function, arguments)


def _texts(function: object, arguments: object) -> Iterator[Found]:
    """Yield the text of one call; arguments that are no literals come as None."""
    name = str(function)
    given = arguments if isinstance(arguments, list | tuple) else (arguments,)
    literal = [each for each in given if isinstance(each, str)]
    if "pgettext" in name and len(literal) >= 2:
        context, *texts = literal
        yield context, (texts[0], texts[1]) if name.startswith("np") else texts[0]
    elif name.startswith("ngettext") and len(literal) >= 2:
        yield None, (literal[0], literal[1])
    elif literal and "pgettext" not in name:
        yield None, literal[0]


def _script(catalog: Catalog) -> str:
    texts = {_one(each.id): list(_forms(each.string or "")) for each in catalog if each.id}
    plural = re.sub(r"^.*plural=", "", catalog.plural_forms).strip(" ;")
    return (
        f"// The scripts' texts in {catalog.locale_identifier}: `make messages` writes this file.\n"
        "/* eslint no-unused-vars: off */\n"
        f"globalThis.translations = {{ plural: (n) => Number({plural.replace(' and ', ' && ')}), "
        f"texts: {json.dumps(texts, ensure_ascii=False, indent=0, sort_keys=True)} }};\n"
    )
