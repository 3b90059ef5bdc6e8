"""What an environment.yml of conda names, as requirements of pip. Pure.

Only packages that are known to be the same on PyPI are taken: a name of conda's may be somebody else's there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_SAME: Final = """
accelerate aiohttp albumentations altair astropy beautifulsoup4 black bokeh boto3 bottleneck catboost click
cython dask datasets diffusers distributed einops evaluate fastapi flake8 flask gensim geopandas gym gymnasium
h5py httpx huggingface_hub imageio ipykernel ipython ipywidgets jax jaxlib jinja2 joblib jupyter jupyterlab
keras librosa lightgbm lightning lxml matplotlib mlflow mypy nbconvert networkx nibabel nltk notebook numba
numexpr numpy omegaconf openpyxl optuna pandas pillow pip plotly polars protobuf psutil pyarrow pydantic pytest
pytorch-lightning pyyaml requests rich ruff safetensors scikit-image scikit-learn scipy seaborn sentencepiece
setuptools shap shapely sqlalchemy statsmodels sympy tensorboard tensorflow timm tokenizers torchmetrics tornado
tqdm transformers typer umap-learn wandb wheel xarray xgboost zarr
"""
SAME: Final = frozenset(_SAME.split())
OTHER: Final = {
    "pytorch": "torch",
    "pytorch-cpu": "torch",
    "pytorch-gpu": "torch",
    "torchvision": "torchvision",
    "torchaudio": "torchaudio",
    "tensorflow-gpu": "tensorflow",
    "matplotlib-base": "matplotlib",
    "dask-core": "dask",
    "msgpack-python": "msgpack",
    "opencv": "opencv-python-headless",
    "py-opencv": "opencv-python-headless",
    "py-xgboost": "xgboost",
    "pytables": "tables",
    "python-graphviz": "graphviz",
}
OF_THE_IMAGE: Final = ("python", "pip", "setuptools", "wheel")  # what every environment has
MAX_SHOWN: Final = 8
MAX_LINE: Final = 500
_ITEM: Final = re.compile(r"(\s*)-\s+(.*)")
_SPEC: Final = re.compile(r"(?:[\w./-]+::)?([A-Za-z0-9._-]+)\s*(.*)", re.ASCII)
_PIN: Final = re.compile(r"==?\s*([0-9][\w.!*+]*)(?:=[\w.*]+)?", re.ASCII)  # =1.26, ==1.26.4, =1.26=a_build
_BOUNDS: Final = re.compile(r"(?:(?:[<>]=?|!=)\s*[0-9][\w.!+*]*\s*,?\s*)+", re.ASCII)


class Translated(NamedTuple):
    """Lines for a requirements file, names that are conda's alone, and the version of Python that is asked for."""

    requirements: tuple[str, ...]
    left_out: tuple[str, ...]
    python: str = ""

    @property
    def note(self) -> str:
        """A sentence about what is not installed, "" where everything is."""
        if not self.left_out:
            return ""
        names = [name[:60] for name in self.left_out[:MAX_SHOWN]] + ["..."] * (len(self.left_out) > MAX_SHOWN)
        return f"The environment.yml names what conda alone has, which is not installed: {', '.join(names)}."


def translate(text: str) -> Translated:
    """Return what the list `dependencies` of an environment.yml asks for; of YAML the part that such lists use."""
    requirements, left_out, python = list[str](), list[str](), ""
    for is_of_pip, value in _dependencies(text):
        name, asked, pin = ("", value, "") if is_of_pip else _conda(value)
        if name == "python":
            python = pin
        elif asked:
            requirements.append(asked)
        elif name not in OF_THE_IMAGE:
            left_out.append(name)
    return Translated(tuple(requirements), tuple(left_out), python)


def _dependencies(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the entries of the list, and whether each is below `- pip:`, so one of pip's."""
    is_in_list, pip_depth = False, -1
    for line in text.splitlines():
        if len(line) > MAX_LINE or not (line := re.sub(r"(?:^|\s)#.*", "", line).rstrip()):
            continue
        item = _ITEM.fullmatch(line)
        if item is None:
            is_in_list = (line[0].isspace() and is_in_list) or re.fullmatch(r"dependencies\s*:", line) is not None
            continue
        depth, value = len(item[1]), item[2].strip().strip("\"'")
        is_of_pip = 0 <= pip_depth < depth
        pip_depth = pip_depth if is_of_pip else depth if re.fullmatch(r"pip\s*:", value) else -1
        if is_in_list and (is_of_pip or pip_depth < 0):
            yield is_of_pip, value


def _conda(spec: str) -> tuple[str, str, str]:
    """Return the name, the requirement that is the same ("" without), and the version that is pinned."""
    found = _SPEC.fullmatch(spec.split("[")[0].strip())
    if found is None:
        return spec, "", ""
    name, bound = found[1].lower(), found[2].strip()
    own = OTHER.get(name, name if name in SAME else "")
    pinned = _PIN.fullmatch(bound) or re.fullmatch(r"([0-9][\w.*]*)(?:\s+\S+)?", bound)
    version = pinned[1].rstrip("*").rstrip(".") if pinned else ""
    if not own or name in OF_THE_IMAGE or (bound and not pinned and not _BOUNDS.fullmatch(bound)):
        return name, "", version
    return name, f"{own}=={version}.*" if pinned else f"{own}{bound.replace(' ', '')}", version
