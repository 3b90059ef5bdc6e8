"""Parts of the list as HTML. Each is a function of a value and the language, so equal values are rendered once."""

from functools import lru_cache
from typing import Any, Final

from django.template.loader import get_template
from django.utils import translation
from django.utils.safestring import SafeString, mark_safe

from pages.session_list.resource_bars import GpuMap
from pages.session_list.rows import Row

MAX_CACHED_ROWS: Final = 4096  # of a process; about 4 kB each
MAX_CACHED_GPU_MAPS: Final = 512


def render_row(row: Row, columns: tuple[str, ...], user_id: int, *, is_superadmin: bool) -> SafeString:
    """Return the row in the active language, as this user sees it."""
    may_undo = row.may_be_undone_by(user_id, is_superadmin=is_superadmin)
    return _row(row, columns, translation.get_language() or "", may_undo=may_undo)


def render_gpus(gpus: GpuMap, fgpu_per_gpu: int, accelerator_name: str) -> SafeString:
    """Return the GPU blocks of a group in the active language."""
    return _gpus(gpus, fgpu_per_gpu, accelerator_name, translation.get_language() or "")


def rendered_count() -> int:
    """Return how many rows this process has rendered, not counting those that were kept."""
    return _row.cache_info().misses


@lru_cache(MAX_CACHED_ROWS)
def _row(row: Row, columns: tuple[str, ...], language: str, *, may_undo: bool) -> SafeString:
    return _html("session_list/_row.html", {"row": row, "columns": columns, "may_undo": may_undo})


@lru_cache(MAX_CACHED_GPU_MAPS)
def _gpus(gpus: GpuMap, fgpu_per_gpu: int, accelerator_name: str, language: str) -> SafeString:
    context = {"gpus": gpus, "fgpu_per_gpu": fgpu_per_gpu, "accelerator_name": accelerator_name}
    return _html("session_list/_gpus.html", context)


def _html(template: str, context: dict[str, Any]) -> SafeString:
    return mark_safe(get_template(template).render(context))  # noqa: S308  # templates escape
