"""cuda.bindings 13 under the name that the tests of cuda-python 12 know it by, with their arguments."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver  # type: ignore[import-not-found]
from cuda.bindings.driver import *  # type: ignore[import-not-found]  # noqa: F403


def cuCtxCreate(flags: int, device: Any) -> Any:
    return driver.cuCtxCreate(None, flags, device)


def cuGraphAddNode(graph: Any, after: Any, count: int, params: Any) -> Any:
    return driver.cuGraphAddNode(graph, after, None, count, params)
