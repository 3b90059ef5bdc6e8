#!/usr/bin/env -S python3 -I
"""Run Chromium so that it does not hear of network devices that come and go.

Every container brings one, and Chromium then fails all requests that are under way (ERR_NETWORK_CHANGED). A seccomp
filter refuses it the netlink sockets by which it would hear; it does without.
"""

import ctypes
import os
import socket
import struct
import sys

CHROMIUM = "/usr/bin/chromium-headless-shell"
ARCHITECTURES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}  # AUDIT_ARCH_*, number of socket()
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ARCHITECTURE, NUMBER, FIRST_ARGUMENT = 4, 0, 16  # offsets in struct seccomp_data
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 97  # EAFNOSUPPORT
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER = 22, 38, 2


def refuse_netlink() -> None:
    """Forbid this process and its children to open netlink sockets. Raises OSError."""
    architecture, socket_call = ARCHITECTURES[os.uname().machine]
    program = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_IF_EQUAL, 0, 5, architecture),
        (LOAD, 0, 0, NUMBER),
        (JUMP_IF_EQUAL, 0, 3, socket_call),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (JUMP_IF_EQUAL, 0, 1, int(socket.AF_NETLINK)),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    filter_ = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, MODE_FILTER, filter_, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


if __name__ == "__main__":
    refuse_netlink()
    os.execv(CHROMIUM, [CHROMIUM, *sys.argv[1:]])
