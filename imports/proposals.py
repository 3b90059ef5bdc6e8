"""What a session for a tree would be: environment, resources, app and file, each with a sentence that says why."""

import re
from typing import Any, Final

from folders.sharing.access import Access, access
from imports.models import Import, ImportTarget
from imports.requests import LaunchOptions
from resources.amounts.units import fgpu_text, size_text
from resources.images import builds
from resources.models import Image
from sessions.launching.mounts import MountRequest

# Framework that a tree names: the environment that has it. The first that fits is proposed.
ENVIRONMENTS: Final = {
    "torch": "PyTorch",
    "transformers": "PyTorch",
    "tensorflow": "TensorFlow",
    "keras": "TensorFlow",
    "jax": "JAX",
    "scikit-learn": "scikit-learn",
    "pandas": "scikit-learn",
    "python": "Python",
}
PLAIN: Final = "Python"
# What is in the name of an image on which a Dockerfile or a devcontainer.json builds, and the package that it has.
BASES: Final = (
    ("pytorch", "torch"),
    ("tensorflow", "tensorflow"),
    ("jax", "jax"),
    ("scipy-notebook", "scikit-learn"),
    ("datascience-notebook", "scikit-learn"),
    ("scikit", "scikit-learn"),
    ("python", "python"),
    ("-notebook", "python"),
    ("conda", "python"),
)
WITH_GPU: Final = ("PyTorch", "TensorFlow", "JAX")
WHOLE_GPU: Final = 1000
NOTEBOOKS: Final = "jupyterlab"
EDITOR: Final = "vscode"


def propose(import_: Import) -> LaunchOptions:
    """Return what is proposed for the owner of an import that is done."""
    found, reasons = import_.found, dict[str, str]()
    named = dict(found.get("frameworks", {}))
    environment = _environment(found, named, reasons)
    image = _image(import_, environment, named, reasons)
    needs = found.get("devcontainer", {})
    for name in ("cpus", "memory"):
        if value := needs.get(name):
            shown = size_text(value) if name == "memory" else value
            reasons["memory" if name == "memory" else "cpu"] = f"Its devcontainer.json asks for {shown}."
    app, file = _opened(import_, image, reasons)
    mounts = []
    if import_.target == ImportTarget.FOLDER and import_.folder is not None:
        mounts = [MountRequest(folder=import_.folder)] if access(import_.owner, import_.folder) > Access.NONE else []
    return LaunchOptions(
        image=image,
        cpu=needs.get("cpus"),
        memory=needs.get("memory"),
        fgpu=_fgpu(needs, image, reasons),
        mounts=mounts,
        app=app,
        tree=import_.tree,
        file=file,
        reasons=reasons,
    )


def _environment(found: dict[str, Any], named: dict[str, str], reasons: dict[str, str]) -> str:
    """Return the environment of the first framework that is named; add to those what a base image has."""
    is_container = bool(found.get("devcontainer", {}).get("image"))
    base = found.get("devcontainer", {}).get("image") or found.get("base") or ""
    has = next((package for part, package in BASES if part in base.lower()), "")
    for framework, environment in ENVIRONMENTS.items():
        if framework in named and framework != "python":
            reasons["image"] = f"It names {framework}."
            return environment
    if has:
        version = re.search(r":(?:[0-9]+-)?v?([0-9]+(?:\.[0-9]+)+)", base)
        named[has] = version[1] if version else named.get(has, "")
        file = "devcontainer.json" if is_container else "Dockerfile"
        reasons["image"] = f"Its {file} builds on {base}."
        return ENVIRONMENTS[has]
    reasons["image"] = "It names no framework."
    if base:
        reasons["image"] = f"It builds on {base}, which is like no environment here: what that installs is not there."
    return PLAIN


def _image(import_: Import, environment: str, named: dict[str, str], reasons: dict[str, str]) -> Image | None:
    """Return the version of the environment that is asked for, else its default; plain Python where there is none."""
    usable = Image.objects.usable_by(import_.owner).select_related("build").prefetch_related("apps")
    for name in (environment, PLAIN):
        images = [each for each in usable.filter(environment=name) if builds.refusal(each) is None]
        wanted = [version for each, version in named.items() if version and ENVIRONMENTS.get(each) == name]
        exact = [each for each in images if any(f"{version}.".startswith(f"{each.version}.") for version in wanted)]
        images = exact or sorted(images, key=lambda each: (not each.is_default, each.owner_id is None))
        if images:
            if name != environment:
                reasons["image"] = f"It needs {environment}, which is not among the environments that you may use."
            return images[0]
    return None


def _fgpu(needs: dict[str, Any], image: Image | None, reasons: dict[str, str]) -> int | None:
    if needs.get("gpu") is True:
        reasons["fgpu"] = "Its devcontainer.json asks for a GPU."
        return WHOLE_GPU
    if image is not None and image.min_fgpu:
        reasons["fgpu"] = f"The image needs {fgpu_text(image.min_fgpu)} fGPU."
        return image.min_fgpu
    return None


def _opened(import_: Import, image: Image | None, reasons: dict[str, str]) -> tuple[str, str]:
    """Return the app and the file that it opens."""
    apps = {app.name for app in image.apps.all()} if image else set()
    notebooks = import_.found.get("notebooks", [])
    file = import_.found.get("path") or import_.path or next(iter(notebooks), "")
    is_notebook = file.endswith(".ipynb") or (not file and bool(notebooks))
    wanted = (NOTEBOOKS, EDITOR) if is_notebook else (EDITOR, NOTEBOOKS)
    app = next((each for each in wanted if each in apps), "")
    if app:
        reasons["app"] = "There are notebooks in it." if is_notebook else "There are no notebooks in it."
    return app, file
