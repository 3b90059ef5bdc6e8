"""Amounts are read exactly or refused, and written so that nothing is overstated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.amounts.units import (
    GIB,
    MIB,
    amount_text,
    bytes_from,
    fgpu_text,
    listing,
    milli_fgpu_from,
    size_text,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1048576", MIB),
        ("512m", 512 * MIB),
        ("4g", 4 * GIB),
        (" 4G ", 4 * GIB),
        ("4gb", 4 * GIB),
        ("1.5 GiB", 3 * GIB // 2),
        ("2t", 2048 * GIB),
        ("64 KB", 65536),
        ("100 B", 100),
    ],
)
def test_sizes_are_read_in_powers_of_1024(text: str, size: int) -> None:
    assert bytes_from(text) == size


@pytest.mark.parametrize("text", ["", "g", "-1g", "+1g", "1e3", "1,5g", "4x", "4 g g", "nan", "٤g", ".5g", "9" * 5000])
def test_a_malformed_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size; write for example") as caught:
        bytes_from(text)
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(
    ("text", "milli"),
    [("0", 0), ("-0", 0), ("1", 1000), ("0.35", 350), (" .5 ", 500), ("2.", 2000), ("+1.50", 1500), ("0.350000", 350)],
)
def test_fgpu_is_read_exactly(text: str, milli: int) -> None:
    assert milli_fgpu_from(text) == milli


@pytest.mark.parametrize(
    ("text", "lower", "upper"),
    [("0.355", "0.35", "0.36"), ("0.001", "0", "0.01"), ("1.999", "1.99", "2"), ("0.350000000001", "0.35", "0.36")],
)
def test_fgpu_between_steps_names_both_neighbours(text: str, lower: str, upper: str) -> None:
    with pytest.raises(ValueError, match=f"the nearest values are {lower} and {upper}[.]$"):
        milli_fgpu_from(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "one",
        "nan",
        "sNaN",
        "inf",
        "1e3",
        "1e99999",
        "1e999999",
        "1_0",
        "0,5",
        "٣",
        "9" * 5000,
        "0." + "3" * 50,
    ],
)
def test_malformed_fgpu_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number of fGPU") as caught:
        milli_fgpu_from(text)
    assert len(str(caught.value)) < 150


def test_fgpu_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="zero or more"):
        milli_fgpu_from("-0.5")


@pytest.mark.parametrize(
    ("milli", "text"),
    [(0, "0"), (10, "0.01"), (350, "0.35"), (500, "0.5"), (1000, "1"), (10100, "10.1"), (100000, "100")],
)
def test_fgpu_is_written_without_trailing_zeros(milli: int, text: str) -> None:
    assert fgpu_text(milli) == text


@given(st.integers(0, 99_999_999))
def test_fgpu_that_was_written_reads_back(hundredths: int) -> None:
    assert milli_fgpu_from(fgpu_text(hundredths * 10)) == hundredths * 10


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (64 * MIB, "64 MiB"),
        (2 * GIB, "2 GiB"),
        (100 * GIB, "100 GiB"),
        (3 * GIB // 2, "1.5 GiB"),
        (2**40, "1 TiB"),
        (4 * GIB - 1, "3.99 GiB"),
        (GIB - 1, "1023.99 MiB"),
    ],
)
def test_sizes_are_formatted_in_the_largest_unit(size: int, text: str) -> None:
    assert size_text(size) == text


@given(st.integers(0, 2**62))
def test_a_formatted_size_is_never_too_large(size: int) -> None:
    read = bytes_from(size_text(size))
    assert read <= size
    assert size - read <= size / 100


def test_amounts_carry_their_unit() -> None:
    assert amount_text("cpu", 1) == "1 CPU core"
    assert amount_text("cpu", 8) == "8 CPU cores"
    assert amount_text("memory", 2 * GIB) == "2 GiB of memory"
    assert amount_text("fgpu", 500) == "0.5 fGPU"


@pytest.mark.parametrize(("parts", "text"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_a_list_reads_as_in_a_sentence(parts: list[str], text: str) -> None:
    assert listing(parts) == text
