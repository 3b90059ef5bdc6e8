"""The Range header."""

import pytest

from folders.files.downloads.byte_range import ByteRange, RangeNotSatisfiableError, parse_range


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=2-", (2, 10)),
        ("bytes=2-5", (2, 6)),
        ("bytes=2-500", (2, 10)),
        ("BYTES= 2-5 ", (2, 6)),
        ("bytes=-3", (7, 10)),
        ("bytes=-300", (0, 10)),
        (None, None),
        ("", None),
        ("bytes=", None),
        ("bytes=-", None),
        ("bytes=5-2", None),
        ("bytes=a-b", None),
        ("bytes=0-1,4-5", None),
        ("items=0-1", None),
        ("bytes=99999999999999999999-", None),
    ],
)
def test_range_of_ten_bytes(header: str | None, expected: tuple[int, int] | None) -> None:
    assert parse_range(header, 10) == (expected and ByteRange(*expected))


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=10-20", "bytes=-0"])
def test_range_behind_the_end_is_refused(header: str) -> None:
    with pytest.raises(RangeNotSatisfiableError):
        parse_range(header, 10)


def test_empty_file_has_no_ranges() -> None:
    with pytest.raises(RangeNotSatisfiableError):
        parse_range("bytes=0-", 0)
