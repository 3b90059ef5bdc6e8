"""Where folders may be mounted, and what is said where not."""

import pytest

from folders.mount_paths import absolute_path, overlapping, path_error

GOOD = (
    "/home/work/data",
    "/home/work/.local",
    "/home/work/a/b",
    "/data/imagenet",
    "/mnt/x",
    "/media/a+b",
    "/srv/x_1@2",
)
BAD = {
    "/home/work": "itself is reserved",
    "/data": "itself is reserved",
    "/": "cannot be used",
    "/etc": "path of the system",
    "/etc/ssh": "path of the system",
    "/home/worker/x": "path of the system",
    "/home/work-2": "path of the system",
    "/proc/1": "path of the system",
    "/home/work/.ssh": "reserved for the platform",
    "/home/work/.ssh/keys": "reserved for the platform",
    "/home/work/id_container": "reserved for the platform",
    "/home/work/../../etc": "cannot be used",
    "/home/work/./x": "cannot be used",
    "/home/work//x": "cannot be used",
    "/home/work/x/": "cannot be used",
    "/home/work/a b": "cannot be used",
    "/home/work/a\nb": "cannot be used",
    "/home/work/a:b": "cannot be used",
    "/home/work/a,b": "cannot be used",
    "/home/work/\ud800": "cannot be used",
    "/home/work/ä": "cannot be used",
    "/home/work/" + "x" * 250: "at most 255",
}


def test_a_folder_is_mounted_below_home_unless_absolute() -> None:
    assert absolute_path("", "data") == "/home/work/data"
    assert absolute_path("sets/one/", "data") == "/home/work/sets/one"
    assert absolute_path(" /mnt/x ", "data") == "/mnt/x"


@pytest.mark.parametrize("path", GOOD)
def test_good_paths_are_accepted(path: str) -> None:
    assert path_error(path) is None


@pytest.mark.parametrize("path", BAD, ids=ascii)
def test_bad_paths_are_refused_with_a_reason(path: str) -> None:
    error = path_error(path)
    assert error is not None
    assert BAD[path] in error
    error.encode()  # can be sent


def test_paths_overlap_if_one_lies_in_the_other() -> None:
    assert overlapping("/mnt/a", ["/mnt/ab", "/mnt/a/b"]) == "/mnt/a/b"
    assert overlapping("/mnt/a/b", ["/mnt/a"]) == "/mnt/a"
    assert overlapping("/mnt/a", ["/mnt/a"]) == "/mnt/a"
    assert overlapping("/mnt/a", ["/mnt/ab", "/mnt/b"]) is None
