"""Documents of people: spec files, definitions of models, tables of users, addresses and repositories to import."""

import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from deployments.definitions.drafts import DefinitionError
from deployments.definitions.model_file import drafts_of
from imports.addresses import MAX_NAME_LENGTH, AddressError, parse, path_error, ref_error
from imports.fetcher import archives, conda, packages
from imports.fetcher.job import FetchError, FetchJob
from imports.fetcher.survey import FILES, check_path, survey
from resources.user_import.services import COLUMNS, UserImportError, _lines
from restapi.plain_yaml import MAX_DEPTH, PlainYamlError, documents
from specs.documents import spec_document, yaml_documents
from specs.formats.options import is_script, options_of
from specs.problems import SpecError
from specs.writing import plain_text

LONG_NUMBER: Final = re.compile(r"[0-9.]{20}|[eE][-+]?[0-9]{3}")  # which is written in a form that is read as a text


def plain_yaml(data: bytes) -> None:
    """A text is YAML that is written and read again as the same values, or refused at one of its lines."""
    text = data.decode(errors="replace")
    try:
        found, line = documents(text), 1
    except PlainYamlError as error:
        found, line = [], error.line
    assert 1 <= line <= len(text) + 1
    for each in found if not LONG_NUMBER.search(text) else ():
        (again,) = documents(plain_text(each.value)) or [each]
        assert again.value == each.value
        assert all(len(place) <= MAX_DEPTH + 1 for place in each.lines)


def spec_documents(data: bytes) -> None:
    """A spec file's documents have fields, and a script's options have names, or all is refused by SpecError."""
    text = data.decode(errors="replace")
    with suppress(SpecError):
        for each in map(spec_document, yaml_documents(text)):
            each.name.encode()
            str(each.problem(("a", 0), "wrong"))
    with suppress(SpecError):
        if is_script(text):
            for mark in ("SBATCH", "GP"):
                assert all(0 < each.line <= len(text.splitlines()) for each in options_of(text, mark, {}, frozenset()))


def model_file(data: bytes) -> None:
    """A definition of models is a list of drafts, or refused with its mistakes."""
    with suppress(DefinitionError):
        for draft in drafts_of(data.decode(errors="replace"), "folder"):
            repr(draft).encode()


def user_table(data: bytes) -> None:
    """Each line of a table of users has the columns that it names, or all is refused by its own error."""
    with suppress(UserImportError):
        for number, values in _lines(data.decode(errors="replace")):
            assert number > 0
            assert set(values) <= set(COLUMNS)


def import_address(data: bytes) -> None:
    """An address means a public source at a host by TLS or SSH, without secrets, and is read back as the same."""
    with suppress(AddressError):
        source = parse(data.decode(errors="surrogateescape"))
        assert source.is_ssh or source.url.startswith("https://")
        assert source.host
        assert source.url[:1] != "-"
        assert not source.path or not path_error(source.path)
        assert not source.ref or not ref_error(source.ref)
        assert len(source.name) <= MAX_NAME_LENGTH
        assert not path_error(source.name)
        assert "/" not in source.name
        assert not source.name.startswith(".")
        if not source.is_ssh:
            assert urlsplit(source.url).password is None
            assert parse(source.url).host == source.host


def import_archive(data: bytes) -> None:
    """An archive is unpacked below its tree, without links that lead out, or refused by FetchError."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as above:
        file, tree = Path(above, "archive"), Path(above, "tree")
        file.write_bytes(data)
        job = FetchJob(id="1", kind="archive", url="", target=tree, max_bytes=2**20, max_files=100)
        with suppress(FetchError):
            archives.unpack(file, tree, job)
        assert set(os.listdir(above)) <= {"archive", "tree", "tree.only"}
        top = os.path.realpath(tree)
        for folder, names, files in os.walk(tree):
            for name in (*names, *files):
                path = os.path.join(folder, name)
                if os.path.islink(path):
                    assert os.path.realpath(path).startswith(f"{top}/") or os.path.realpath(path) == top
                assert os.lstat(path).st_mode & 0o7000 == 0


def repository_files(data: bytes) -> None:
    """What a repository says of its packages and hardware fits a line of output, whatever its files are."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as above:
        tree = Path(above)
        for name in FILES:
            with suppress(OSError):
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                (tree / name).write_bytes(data)
        job = FetchJob(id="1", kind="git", url="", target=tree)
        notebook = data.decode(errors="replace") + ".ipynb"
        found = survey([(name, len(data)) for name in (*FILES, notebook)], lambda _: data, job)
        assert found["files"] == len(FILES) + 1
        with suppress(FetchError):
            packages._plan(tree, job)
        conda.translate(data.decode(errors="replace"))
        with suppress(FetchError):
            check_path(data.decode(errors="surrogateescape"), tree)
