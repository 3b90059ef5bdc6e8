"""A host that has joined builds images for itself, and registers none."""

import subprocess
import sys
from pathlib import Path

import pytest

from resources.images.builder import Builder, BuildOutcome, BuildResult
from resources.images.catalogue.catalog import Entry, load
from resources.images.catalogue.recipes import Recipe
from resources.management.commands.build_images import build_for_host
from resources.models import Image
from tests.containers import ENGINE_URL
from tests.factories import make_image
from tests.joined_hosts import ROOT, environment

ENTRY = """
[[image]]
environment = "{name}"
version = "1"
reference = "gpuplatform-buildtest/{name}:1"
[image.build]
suite = "bookworm"
packages = []
"""


class FakeBuilder(Builder):
    """Builds nothing, and fails with what is called `broken`."""

    def __init__(self) -> None:
        self.built: list[str] = []

    def build(self, entry: Entry, recipe: Recipe, on_step: object = None) -> BuildResult:
        self.built.append(entry.reference)
        is_broken = entry.environment == "broken"
        return BuildResult(entry, BuildOutcome.FAILED if is_broken else BuildOutcome.BUILT, 1, "no" * is_broken)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    (tmp_path / "Dockerfile").touch()
    (tmp_path / "catalog.toml").write_text("".join(ENTRY.format(name=name) for name in ("tiny", "broken", "other")))
    return tmp_path


@pytest.mark.docker
def test_a_joined_host_may_run_the_command(variables: dict[str, str], folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "build_images", "--folder", str(folder)],
        cwd=ROOT,
        env=environment(variables) | {"COMPUTE_DOCKER_URL": ENGINE_URL},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not Image.objects.exists()


@pytest.mark.django_db
def test_it_builds_what_is_offered_or_named(folder: Path) -> None:
    for name in ("tiny", "broken"):
        make_image(environment=name, version="1")
    entries, builder, lines = load(folder / "catalog.toml", gpu=False), FakeBuilder(), list[str]()
    assert build_for_host(builder, entries, with_disabled=False, report=lines.append) == ["broken 1"]
    assert builder.built == ["gpuplatform-buildtest/tiny:1", "gpuplatform-buildtest/broken:1"]
    assert lines == ["tiny 1: built, 1.0 s", "broken 1: failed, 1.0 s\nno"]
    build_for_host(builder, entries[2:], with_disabled=True, report=lines.append)
    assert builder.built[2:] == ["gpuplatform-buildtest/other:1"]
