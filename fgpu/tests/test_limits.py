"""The limits file: what is written is read back, and nothing else is read."""

from decimal import Decimal

import pytest

from fgpu.limits import GpuLimit, format_limits, parse_limits

LIMITS = [
    GpuLimit(uuid="GPU-1", memory_bytes=2**33, sm_percent=Decimal("35.00"), phase_ms=60, context_bytes=2**20),
    GpuLimit(uuid="GPU-2", memory_bytes=1, sm_percent=Decimal("100.00")),
]
TEXT = format_limits(LIMITS)


def test_formatted_limits_are_parsed_back() -> None:
    assert parse_limits(TEXT) == LIMITS


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version=2\n",
        TEXT.removesuffix("end\n"),
        TEXT.replace("version=2", "version=1"),
        TEXT.replace("sharing=cap", "sharing=none"),
        TEXT.replace("pinned_bytes=0\n", ""),
        TEXT.replace("mem_bytes=1 ", "mem_bytes=one "),
        TEXT.replace("sm_percent=35.00", "sm_percent=half"),
        TEXT.replace(" phase_ms=60", ""),
        TEXT.replace("dev=GPU-1", "GPU-1"),
    ],
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^"):
        parse_limits(text)
