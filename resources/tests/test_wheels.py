"""Wheels that the host fetches for a build: from where its pip looks, and what is said where they are nowhere."""

import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from resources.images import wheels
from resources.images.catalogue.recipes import Recipe
from resources.images.wheels import WheelError, fetched

RECIPE = Recipe(suite="bookworm", packages=(), wheels=("gpuplatform-demo==1.0+cpu",))
METADATA = "Metadata-Version: 2.1\nName: gpuplatform-demo\nVersion: 1.0+cpu\n"


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A folder with a wheel of one version for three Pythons, of which images of bookworm can use one."""
    for python in ("cp39-cp39", "cp311-cp311", "cp313-cp313"):
        with zipfile.ZipFile(tmp_path / f"gpuplatform_demo-1.0+cpu-{python}-manylinux_2_28_x86_64.whl", "w") as wheel:
            wheel.writestr("gpuplatform_demo-1.0+cpu.dist-info/METADATA", METADATA)
            wheel.writestr("gpuplatform_demo-1.0+cpu.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: {python}-any\n")
    return tmp_path


def environ(**pip: str) -> dict[str, str]:
    """Return an environment in which pip knows no places but these."""
    return {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": "file:///nowhere", **pip}


def test_the_wheel_of_the_images_python_is_fetched(shelf: Path) -> None:
    said: list[str] = []
    with fetched(RECIPE, "x86_64", environ(PIP_FIND_LINKS=str(shelf)), said.append) as files:
        assert [file.name for file in files] == ["gpuplatform_demo-1.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"]
        assert zipfile.is_zipfile(files[0])
    assert not files[0].parent.exists()
    assert said == ["fetching gpuplatform-demo==1.0+cpu"]


def test_a_wheel_of_another_architecture_is_not_taken(shelf: Path) -> None:
    with (
        pytest.raises(WheelError, match=r"gpuplatform-demo==1\.0\+cpu could not be fetched.*PIP_FIND_LINKS"),
        fetched(RECIPE, "aarch64", environ(PIP_FIND_LINKS=str(shelf)), lambda _: None),
    ):
        pass


def test_the_recipes_index_is_asked_last(shelf: Path) -> None:
    page = shelf / "simple" / "gpuplatform-demo" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text("".join(f'<a href="{wheel.as_uri()}">{wheel.name}</a>' for wheel in shelf.glob("*.whl")))
    recipe = replace(RECIPE, wheel_index=(shelf / "simple").as_uri())
    said: list[str] = []
    with fetched(recipe, "x86_64", environ(), said.append) as files:
        assert len(files) == 1
    assert said == ["fetching gpuplatform-demo==1.0+cpu", f"{said[0]} from {recipe.wheel_index}"]
    said.clear()
    with fetched(recipe, "x86_64", environ(PIP_FIND_LINKS=str(shelf)), said.append) as files:
        assert len(files) == 1
    assert len(said) == 1


def test_pip_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "FETCH_SECONDS", 0.01)
    with pytest.raises(WheelError, match="pip download took more than"), fetched(RECIPE, "x86_64", {}, lambda _: None):
        pass


def test_a_recipe_without_wheels_calls_no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere")
    with fetched(Recipe(suite="bookworm", packages=()), "x86_64", {}, lambda _: None) as files:
        assert files == ()
