"""Static files are collected when something has changed; processes serve what pages of two versions ask for."""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from django.apps import apps
from django.contrib.staticfiles import finders
from django.http import HttpResponse, StreamingHttpResponse
from django.template.loader import get_template, render_to_string
from django.test import AsyncRequestFactory, RequestFactory
from pytest_django import Settings

from gpuplatform.applications import TEMPLATES, load_templates
from gpuplatform.bootstrap import static_files
from gpuplatform.serving.middleware import BLOCKS_AT_ONCE, StaticFilesOfVersions, StreamsInThreads
from gpuplatform.templatetags.ui import import_map

WHITENOISE = "whitenoise.storage.CompressedManifestStaticFilesStorage"


@pytest.fixture
def source(settings: Settings, tmp_path: Path) -> Iterator[Path]:
    """Return a folder that is the only source of static files."""
    (tmp_path / "source").mkdir()
    settings.STATICFILES_DIRS = [tmp_path / "source"]
    settings.STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
    settings.STATIC_ROOT = tmp_path / "root"
    finders.get_finder.cache_clear()  # type: ignore[attr-defined]  # the stub hides that it is an lru_cache
    yield tmp_path / "source"
    finders.get_finder.cache_clear()  # type: ignore[attr-defined]  # the stub hides that it is an lru_cache


def test_all_modules_of_the_import_map_are_collected() -> None:
    ignored = apps.get_app_config("staticfiles").ignore_patterns  # type: ignore[attr-defined]
    found = (each for finder in finders.get_finders() for each in finder.list(ignored))
    collected = {f"{getattr(storage, 'prefix', None) or ''}/{path}".lstrip("/") for path, storage in found}
    modules = json.loads(import_map())["imports"].values()
    assert len(modules) > 50
    assert {address.removeprefix("/static/") for address in modules} <= collected


def test_files_are_collected_again_only_after_changes(source: Path, tmp_path: Path) -> None:
    said: list[str] = []
    (source / "site.css").write_text("a {}")
    static_files.collect(said.append)
    static_files.collect(said.append)
    assert ["collecting" in line for line in said] == [True, False]
    (source / "site.css").write_text("a { color: red }")
    (source / "notes.md").write_text("left out")
    static_files.collect(said.append)
    assert "collecting" in said[-1]
    collected = [path.name for path in (tmp_path / "root").iterdir()]
    assert any(name.startswith("site.") for name in collected)
    assert not any(name.startswith("notes") for name in collected)


def test_a_second_process_waits_for_the_first(source: Path) -> None:
    """It would remove what the first has collected so far."""
    (source / "site.css").write_text("a {}")
    said: list[str] = []
    with ThreadPoolExecutor() as pool:

        def report(line: str) -> None:
            said.append(line)
            pool.submit(static_files.collect, said.append)

        static_files.collect(report)
    assert ["collecting" in line for line in said] == [True, False]


@pytest.fixture
def hashed(settings: Settings) -> None:
    settings.DEBUG = False
    settings.STORAGES = settings.STORAGES | {"staticfiles": {"BACKEND": WHITENOISE}}


@pytest.mark.usefixtures("hashed")
def test_files_stay_for_one_version(source: Path, tmp_path: Path) -> None:
    versions = []
    for text in ("a {}", "a { color: red }", "a { color: red }", "a { color: blue }"):
        (source / "site.css").write_text(text)
        static_files.collect(lambda _: None)
        versions.append({path.name for path in (tmp_path / "root").glob("site.*")})
    first, second, again, third = versions
    assert first < second == again
    assert third & second == second - first
    assert [len(each) for each in versions] == [1, 2, 2, 2]
    assert not (tmp_path / "root.new").exists()


@pytest.mark.usefixtures("hashed")
def test_the_stamp_is_moved_last(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[str] = []
    replace = Path.replace

    def noted(path: Path, target: Path) -> Path:
        moved.append(path.name)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", noted)
    for text in map(str, range(8)):  # the order was that of a set
        (source / f"site{text}.css").write_text(text)
        static_files.collect(lambda _: None)
        assert moved[-2:] == [static_files.MANIFEST, static_files.STAMP]


@pytest.mark.django_db  # the end of a request looks at the connection
@pytest.mark.usefixtures("hashed")
def test_a_process_serves_what_is_collected_later(source: Path, tmp_path: Path) -> None:
    (source / "site.css").write_text("a {}")
    static_files.collect(lambda _: None)
    serve = StaticFilesOfVersions(lambda _: HttpResponse(status=404))
    (source / "next.css").write_text("a { color: red }")
    static_files.collect(lambda _: None)
    (name,) = (path.name for path in (tmp_path / "root").glob("next.*"))
    for _ in range(2):
        with closing(serve(RequestFactory().get(f"/static/{name}"))) as response:
            assert response.status_code == 200
    for name in ("../site.css", "", "..", "none.css", "\0", "x" * 5000):
        assert serve(RequestFactory().get(f"/static/{name}")).status_code == 404


@pytest.mark.django_db  # the end of a request looks at the connection
@pytest.mark.usefixtures("hashed")
def test_a_file_that_an_upgrade_removed_is_not_found(source: Path, tmp_path: Path) -> None:
    (source / "site.css").write_text("a {}")
    static_files.collect(lambda _: None)
    serve = StaticFilesOfVersions(lambda _: HttpResponse(status=404))
    for name in [path.name for path in (tmp_path / "root").glob("site.*")]:
        (tmp_path / "root" / name).unlink()
        assert serve(RequestFactory().get(f"/static/{name}")).status_code == 404


async def test_a_file_is_streamed_without_reading_all_of_it_first() -> None:
    block, read = b"x" * 4096, Counter[str]()

    def blocks() -> Iterator[bytes]:
        for _ in range(100):
            read["blocks"] += 1
            yield block

    middleware = StreamsInThreads(lambda request: StreamingHttpResponse())
    response = middleware.process_response(AsyncRequestFactory().get("/static/a.js"), StreamingHttpResponse(blocks()))
    assert isinstance(response, StreamingHttpResponse)
    parts = [(len(part), read["blocks"]) async for part in aiter(response)]
    assert parts[0] == (BLOCKS_AT_ONCE * len(block), BLOCKS_AT_ONCE)
    assert sum(size for size, _ in parts) == 100 * len(block)


def test_a_process_renders_templates_as_they_were_at_its_start(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "templates/part").mkdir(parents=True)
    page = tmp_path / "templates/part/page.html"
    page.write_text("of its version")
    (tmp_path / "templates/part/.page.html.swp").write_bytes(b"\xff{%")  # an editor's
    settings.BASE_DIR = tmp_path
    settings.TEMPLATES = [settings.TEMPLATES[0] | {"DIRS": [tmp_path / "templates"]}]
    load_templates()
    page.write_text("of the next one")
    assert render_to_string("part/page.html") == "of its version"


def test_every_template_compiles(settings: Settings) -> None:
    folder = settings.BASE_DIR / "templates"
    paths = [str(path.relative_to(folder)) for path in folder.rglob("[!.]*") if path.suffix in TEMPLATES]
    assert len([get_template(path) for path in paths]) > 300
