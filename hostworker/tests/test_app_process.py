"""What the scripts in a container tell of an app, as it is read."""

import pytest

from hostworker.app_processes.scripts import listening_ports, read_status

PORT = 8080
ANYWHERE = "   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0000 100 0"
LOOPBACK = ANYWHERE.replace("00000000:1F90", "0100007F:1F90")
LOOPBACK_6 = ANYWHERE.replace("00000000:1F90", "00000000000000000000000001000000:1F90")
OTHER = ANYWHERE.replace("1F90", "1F91")


@pytest.mark.parametrize(
    ("state", "runs", "exit_code"),
    [("runs", True, None), ("none", False, None), ("0", False, 0), ("137", False, 137), ("", False, None)],
)
def test_whether_it_runs_and_how_it_ended(state: str, runs: bool, exit_code: int | None) -> None:
    status = read_status(f"{state}\n\n", PORT)
    assert (status.runs, status.exit_code) == (runs, exit_code)


@pytest.mark.parametrize(
    ("sockets", "is_listening", "is_loopback_only"),
    [
        ([], False, False),
        ([ANYWHERE], True, False),
        ([LOOPBACK], True, True),
        ([LOOPBACK, LOOPBACK_6], True, True),
        ([LOOPBACK, ANYWHERE], True, False),
        ([OTHER], False, False),
        ([LOOPBACK, OTHER], True, True),
    ],
)
def test_where_somebody_listens(sockets: list[str], is_listening: bool, is_loopback_only: bool) -> None:
    status = read_status("\n".join(["none", *sockets]) + "\n\nlast words\n", PORT)
    assert (status.is_listening, status.is_loopback_only) == (is_listening, is_loopback_only)
    assert status.output == "last words"


def test_only_last_output_without_control_codes_is_shown() -> None:
    lines = "\n".join(f"line {number}" for number in range(100))
    status = read_status(f"runs\n\n{lines}\n\x1b[31mred\x1b[0m\x00\x07\n\nafter a blank line", PORT)
    assert status.output.startswith("line 73")
    assert status.output.endswith("red\n\nafter a blank line")


@pytest.mark.parametrize("text", ["", "\n", "\n\n", "99999999999\n", "runs", "runs\n   0: zz:1F90 x\n", "\0" * 50])
def test_whatever_a_container_writes_is_read(text: str) -> None:
    assert not read_status(text, PORT).is_listening


def test_listening_ports_are_reported_with_where() -> None:
    docker_dns = ANYWHERE.replace("00000000:1F90", "0B00007F:A0B1")
    text = "\n".join([LOOPBACK, OTHER, LOOPBACK_6, docker_dns, "nonsense", ""])
    assert listening_ports(text) == {PORT: True, 0x1F91: False}
    assert listening_ports(f"{LOOPBACK}\n{ANYWHERE}") == {PORT: False}
