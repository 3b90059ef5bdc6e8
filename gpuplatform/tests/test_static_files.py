"""Static files are collected when something has changed, and only then."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.apps import apps
from django.contrib.staticfiles import finders
from django.http import StreamingHttpResponse
from django.test import AsyncRequestFactory
from pytest_django import Settings

from gpuplatform.bootstrap import static_files
from gpuplatform.serving.middleware import BLOCKS_AT_ONCE, StreamsInThreads
from gpuplatform.templatetags.ui import import_map


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
