"""The process of an app in its container, by what a shell there can tell: scripts to run, and reading their output.

The scripts ask for little: a POSIX shell, cat, grep, mkdir, rm and tail. What they keep is in a folder of the user's:
`<port>.log` with the app's output, `<port>.pid` and, once it has ended, `<port>.exit`.
"""

import re
from dataclasses import dataclass
from typing import Final

from engine.containers import READ_VARIABLES

MARK: Final = "GPUPLATFORM_APP"  # in the environment of an app's process, so that no other is taken for it
OUTPUT_LINES: Final = 30
OUTPUT_CHARACTERS: Final = 4000
KILLED: Final = 137  # exit code of what SIGKILL ended

STATUS_HEAD_END: Final = "\n\n"  # of STATUS: before the last lines of the app

_COMMON: Final = """
port=$1
folder=${XDG_STATE_HOME:-$HOME/.local/state}/gpuplatform
mkdir -p "$folder" 2>/dev/null && [ -w "$folder" ] || { folder=/tmp/gpuplatform; mkdir -p "$folder"; }
runs() { read -r pid 2>/dev/null <"$folder/$port.pid" && grep -qs ":$port:" "/proc/$pid/environ"; }
"""
# A second start finds the first: whoever runs this makes sure that no other does at the same time. The parentheses stay
# until the app has ended, and note how.
START: Final = f"""{READ_VARIABLES}
{_COMMON}
runs && exit
rm -f "$folder/$port.exit"
cd "$HOME" || cd /
(sh -c "$2"; echo $? >"$folder/$port.exit") >"$folder/$port.log" 2>&1 </dev/null &
echo $! >"$folder/$port.pid"
"""
STATUS: Final = f"""{_COMMON}
if runs; then echo runs; else cat "$folder/$port.exit" 2>/dev/null || echo none; fi
grep -hs ' 0A ' /proc/net/tcp /proc/net/tcp6
echo
tail -n {OUTPUT_LINES} "$folder/$port.log" 2>/dev/null
exit 0
"""

# What listens, told by the shell alone: images with nothing else have sessions, too.
LISTENING: Final = """
for table in /proc/net/tcp /proc/net/tcp6; do
    while read -r line; do case $line in *" 0A "*) echo "$line" ;; esac; done <$table
done 2>/dev/null
exit 0
"""

_TERMINAL_CODE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# Addresses as /proc/net/tcp and tcp6 write them: 127.0.0.1, ::1 and ::ffff:127.0.0.1.
_LOOPBACK: Final = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppStatus:
    """What is seen of an app in its container."""

    runs: bool  # the process that START made
    exit_code: int | None  # of that process; None also where it was killed together with the shell that minds it
    is_listening: bool  # somebody does, on the port
    is_loopback_only: bool  # only at an address that nobody outside the container reaches
    output: str  # its last lines, fit to be shown


def start_command(port: int, command: str) -> list[str]:
    """Return the program that starts `command` in the background, unless it runs already."""
    return ["/bin/sh", "-c", START, "sh", str(port), command]


def status_command(port: int) -> list[str]:
    """Return the program whose output `read_status` understands."""
    return ["/bin/sh", "-c", STATUS, "sh", str(port)]


def environment(port: int) -> dict[str, str]:
    """Return what START needs in its environment beside what the app does."""
    return {MARK: f":{port}:"}


def read_status(text: str, port: int) -> AppStatus:
    """Return what the output of STATUS says. Whatever the container writes, this returns."""
    head, _, output = text.partition(STATUS_HEAD_END)
    state, *sockets = head.splitlines() or [""]
    addresses = {address for address, its_port in map(_listener, sockets) if its_port == port}
    return AppStatus(
        runs=state == "runs",
        exit_code=int(state) if re.fullmatch(r"[0-9]{1,3}", state) else None,
        is_listening=bool(addresses),
        is_loopback_only=bool(addresses) and all(address in _LOOPBACK for address in addresses),
        output=_shown(output),
    )


def listening_ports(text: str) -> dict[int, bool]:
    """Return the ports on which something listens, by the output of LISTENING; True: on loopback addresses alone.

    Other addresses of 127.0.0.0/8 are the engine's, such as its name server at 127.0.0.11, and not told.
    """
    found: dict[int, bool] = {}
    for address, port in map(_listener, text.splitlines()):
        is_loopback = address in _LOOPBACK
        if port and (is_loopback or len(address) > 8 or not address.endswith("7F")):
            found[port] = is_loopback and found.get(port, True)
    return found


def _listener(line: str) -> tuple[str, int]:
    """Return address and port of a line of /proc/net/tcp; port 0 where it is none."""
    match = re.match(r"\s*\d+: ([0-9A-F]{8,32}):([0-9A-F]{4}) ", line)
    return (match[1], int(match[2], 16)) if match else ("", 0)


def _shown(text: str) -> str:
    """Return text of a stranger's program without what would meddle with a page, an e-mail or a terminal."""
    plain = _CONTROL.sub("", _TERMINAL_CODE.sub("", text))
    return "\n".join(plain.splitlines()[-OUTPUT_LINES:])[-OUTPUT_CHARACTERS:].strip()
