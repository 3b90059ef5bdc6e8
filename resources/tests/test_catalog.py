"""The catalogue file: what it may say, and how a mistake in it is reported."""

import subprocess
from dataclasses import replace

import pytest
from django.conf import settings

from resources.amounts.units import GIB, MIB
from resources.images.catalogue.apps import AppEntry
from resources.images.catalogue.catalog import CatalogError, Entry, load, parse, select
from resources.images.catalogue.recipes import Recipe

ONE = """
[[image]]
environment = "Python"
version = "3.11"
reference = "lab/python:3.11"
"""
SMALL = ONE + '[image.build]\nsuite = "bookworm"\n'


def test_an_entry_carries_everything_that_the_file_says() -> None:
    text = """
[[image]]
environment = "scikit-learn"
version = "1.7"
reference = "lab/sklearn:1.7"
description = "for class 3"
default = true
min_cpu = 2
min_memory = "512m"
min_fgpu = "0.25"
min_gpu_memory = "16g"
[image.build]
suite = "trixie"
packages = ["scikit-learn==1.7.2", "pandas[excel]==2.3.3"]
"""
    recipe = Recipe(suite="trixie", packages=("scikit-learn==1.7.2", "pandas[excel]==2.3.3"))
    assert parse(text) == (
        Entry(
            environment="scikit-learn",
            version="1.7",
            reference="lab/sklearn:1.7",
            description="for class 3",
            min_cpu=2,
            min_memory=512 * MIB,
            min_fgpu=250,
            min_gpu_memory=16 * GIB,
            is_default=True,
            recipe=recipe,
        ),
    )


def test_an_entry_without_build_is_a_registry_image() -> None:
    assert parse(ONE)[0].recipe is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[image", "not valid TOML"),
        ("images = 3", "a list of [[image]] tables, [app.<name>] tables, and nothing else"),
        ("image = 3", "a list of [[image]] tables, [app.<name>] tables, and nothing else"),
        (ONE.replace('"3.11"', "3.11", 1), "version must be text in quotes, not 3.11"),
        (ONE.replace('reference = "lab/python:3.11"', ""), "image 1 (Python 3.11): reference is missing"),
        (ONE.replace("lab/python:3.11", "lab/python"), "'lab/python' names no tag; write for example lab/python:1.0"),
        (ONE.replace("lab/python:3.11", "Lab/python:3"), "'Lab/python:3' is not an image reference"),
        (ONE.replace('"Python"', '"Py:thon"'), "environment must have 1 to 64 characters, no colon"),
        (ONE.replace('"Python"', f'"{"x" * 65}"'), "environment must have 1 to 64 characters, no colon"),
        (ONE.replace('"Python"', '""'), "environment must have 1 to 64 characters, no colon"),
        (ONE + 'min_memory = "lots"', "'lots' is not a size"),
        (ONE + 'min_fgpu = "0.333"', "the nearest values are 0.33 and 0.34"),
        (ONE + "min_cpu = 0", "min_cpu must be 1 or more"),
        (ONE + "min_cpu = true", "min_cpu must be a whole number, not True"),
        (ONE + 'default = "yes"', "default must be true or false, not 'yes'"),
        (ONE + 'pakages = ["x"]', "unknown key pakages"),
        (ONE + "build = true", "build must be a table"),
        (ONE + "[image.build]", "suite is missing"),
        (SMALL.replace("bookworm", "../x"), "suite '../x' is not the name of a Debian release"),
        (SMALL + 'packages = "numpy"', "packages must be a list, not 'numpy'"),
        (SMALL + 'packages = ["numpy"]', "packages: 'numpy' must be pinned as name==version"),
        (SMALL + 'packages = ["numpy==1; rm -rf /"]', "must be pinned as name==version"),
        (SMALL + 'packages = ["numpy==2.*"]', "must be pinned as name==version"),
        (SMALL + '[image.build.cpu]\nwheels = ["torch"]', "wheels: 'torch' must be pinned as name==version"),
        (
            SMALL + '[image.build.cpu]\nwheel_index = "here; x"',
            "wheel_index 'here; x' is not the URL of a package index",
        ),
        (SMALL + "[image.build.cpu]\nsuite = 'sid'", "unknown key suite"),
        (SMALL + "[image.build.rocm]", "unknown key rocm"),
        (
            SMALL.replace("bookworm", "buster") + '[image.build.cpu]\nwheels = ["a==1"]',
            "wheels are fetched for bookworm and trixie, not for buster",
        ),
        (ONE + "enabled = false", "an image that is not enabled needs an enable_hint"),
        (SMALL.replace("python:3.11", f"python@sha256:{'0' * 64}"), "named by a tag, not by a digest"),
        (ONE + ONE, "Python 3.11 occurs 2 times"),
        (ONE + ONE.replace('"3.11"', '"3.12"', 1), "reference lab/python:3.11 occurs 2 times"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(CatalogError) as caught:
        parse(text)
    assert message in str(caught.value)


LISTED = ONE + 'apps = ["web", "admin"]\n'
APPS = """
[app.web]
title = "Web"
icon = "chart"
port = 8080
readiness_path = "/health"
token_variable = "WEB_TOKEN"
hint = "Serves what is in ~/web"
warm_up = true
command = "exec serve"
[app.admin]
title = "Web administration"
start_path = "/admin"
server = "web"
"""


def test_two_apps_may_share_one_server() -> None:
    web, admin = parse(LISTED + APPS)[0].apps
    assert web == AppEntry(
        name="web",
        title="Web",
        icon="chart",
        port=8080,
        command="exec serve",
        readiness_path="/health",
        start_path="/",
        token_variable="WEB_TOKEN",
        hint="Serves what is in ~/web",
        warm_up=True,
    )
    assert admin == replace(web, name="admin", title="Web administration", icon="", start_path="/admin", hint="")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("app.admin]", "app.other]", "app 'admin' has no table [app.admin]"),
        ('"web", "admin"', '"web", "web"', "app 'web' is listed 2 times"),
        ('server = "web"', "port = 8080", "apps web and admin share port 8080 but are started differently"),
        ('server = "web"', 'server = "none"', "app admin: server 'none' is no app that says how it is started"),
        ("app.web]", "app.p80]", "app p80: its name must have 1 to 20 small letters and digits, and not be p and"),
        ("app.web]", "app.Web]", "app Web: its name must have"),
        ('title = "Web"', 'title = ""', "app web: title is empty"),
        ('title = "Web"', f'title = "{"x" * 65}"', "app web: title has more than 64 characters"),
        ("port = 8080", "port = 80", "app web: port must be between 1024 and 65535"),
        ("port = 8080", 'port = "8080"', "app web: port must be a whole number"),
        ('icon = "chart"', 'icon = "../x"', "app web: icon '../x' is no name of a drawing"),
        ('"/health"', '"health"', "app web: readiness_path and start_path must begin with one slash"),
        ('"/admin"', '"//evil.example"', "app admin: readiness_path and start_path must begin with one slash"),
        ('"WEB_TOKEN"', '"WEB-TOKEN"', "app web: token_variable 'WEB-TOKEN' is no name of an environment variable"),
        ('"Serves what', f'"{"x" * 100}', "app web: hint has more than 100 characters"),
        ("port = 8080", "port = 8080\ncolour = 1", "app web: unknown key colour"),
        ("[app.web]", "[[app]]", "app: write one table an app, such as [app.jupyter]"),
    ],
)
def test_a_mistake_in_an_app_is_named(old: str, new: str, message: str) -> None:
    text = (LISTED + APPS).replace(old, new)
    with pytest.raises(CatalogError) as caught:
        parse(text if "[[app]]" not in new else LISTED + "[[app]]\n")
    assert message in str(caught.value)


def test_catalogue_apps_have_icons_and_valid_commands() -> None:
    drawings = (settings.BASE_DIR / "static" / "img" / "icons.svg").read_text()
    apps = {app for entry in load(settings.BASE_DIR / "images" / "catalog.toml") for app in entry.apps}
    assert {app.name for app in apps} >= {"jupyter", "jupyterlab", "tensorboard", "mlflow"}
    for app in apps:
        assert f'id="{app.icon}"' in drawings
        subprocess.run(["sh", "-n", "-c", app.command], check=True)


def test_two_default_versions_of_one_environment_are_refused() -> None:
    first = ONE + "default = true\n"
    with pytest.raises(CatalogError, match="Python has 2 default versions; choose one"):
        parse(first + first.replace("3.11", "3.12"))


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(CatalogError) as caught:
        parse(ONE + "min_cpu = 0\n" + ONE + 'default = "yes"\n')
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "image 1 (Python 3.11)",
        "image 2 (Python 3.11)",
    ]


def test_select_accepts_an_environment_or_version() -> None:
    entries = load(settings.BASE_DIR / "images" / "catalog.toml")
    assert select(entries, []) == entries
    assert [entry.label for entry in select(entries, ["python"])] == ["Python 3.11", "Python 3.13"]
    assert [entry.label for entry in select(entries, ["PyTorch:2.7", "Python:3.13"])] == ["Python 3.13", "PyTorch 2.7"]


def test_select_lists_the_entries_for_unknown_names() -> None:
    with pytest.raises(CatalogError, match=r"no such image: julia; the catalogue has Python:3\.11"):
        select(parse(ONE), ["julia"])


BOTH = (
    SMALL
    + """
packages = ["tensorboard==2.21.0"]
[image.build.cuda]
packages = ["torch==2.13.0"]
[image.build.cpu]
wheels = ["torch==2.13.0+cpu"]
wheel_index = "https://example.com/cpu"
"""
)


def test_one_entry_is_built_for_gpus_or_without() -> None:
    (with_gpu,), (without,) = parse(BOTH, gpu=True), parse(BOTH)
    assert with_gpu.recipe == Recipe(suite="bookworm", packages=("torch==2.13.0", "tensorboard==2.21.0"))
    assert without.recipe == Recipe(
        suite="bookworm",
        packages=("tensorboard==2.21.0",),
        wheels=("torch==2.13.0+cpu",),
        wheel_index="https://example.com/cpu",
    )
    assert (with_gpu.accelerators, without.accelerators) == ("cuda", "")
    assert parse(SMALL, gpu=True)[0].accelerators == "", "it has nothing for GPUs"


def test_a_recipe_names_its_build_arguments() -> None:
    recipe = Recipe(suite="bookworm", packages=("b==2",), wheels=("a==1+cpu",))
    assert recipe.arguments() == {"PACKAGES": "a==1+cpu b==2"}
    old = Recipe(
        suite="buster", packages=(), mirror="http://example.com/debian", pip="pip==24.0", jupyter=("c==3", "d==4")
    )
    assert old.arguments() == {
        "PACKAGES": "",
        "MIRROR": "http://example.com/debian buster",
        "PIP": "pip==24.0",
        "JUPYTER": "c==3 d==4",
    }


def test_large_images_of_the_catalogue_are_not_enabled_at_first() -> None:
    entries = load(settings.BASE_DIR / "images" / "catalog.toml")
    built = [entry.label for entry in entries if entry.recipe and entry.is_enabled]
    assert built == ["Python 3.11", "Python 3.13", "scikit-learn 1.5", "scikit-learn 1.7"]
    on_demand = [entry.label for entry in entries if entry.recipe and not entry.is_enabled]
    assert on_demand == ["PyTorch 2.13", "TensorFlow 2.21", "TensorFlow 1.15", "JAX 0.10"]
    environments = {entry.environment for entry in entries}
    assert {entry.environment for entry in entries if entry.is_default} == environments
