"""Programs that take as much as they get of what the kernel limits for all sessions of a host together.

Each is Python for a container. It takes at most as many as its argument says, writes how many it has to FILE, and keeps
them. `ONE` takes one, and prints why not, or nothing.
"""

from typing import Final

FILE: Final = "/tmp/hoard"
_KINDS: Final = """
import array, ctypes, fcntl, os, resource, socket, sys, time

libc = ctypes.CDLL(None, use_errno=True)
kept = []

def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def inotify():
    kept.append(checked(libc.inotify_init1(0)))

def terminals():
    kept.append(os.openpty())

def pipes():
    kept.append(os.pipe())
    pages = fcntl.fcntl(kept[-1][0], fcntl.F_GETPIPE_SZ) // 4096
    if pages < 16:
        raise OSError(0, f"a pipe of {pages} pages")

def requests():  # asynchronous ones; io_setup(2)
    kept.append(ctypes.c_ulong())
    checked(libc.syscall({"x86_64": 206, "aarch64": 0}[os.uname().machine], 256, ctypes.byref(kept[-1])))

def flight():  # ten at a time: a socket that nobody holds any more, which was sent through another, holds descriptors
    if not kept:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        outer, inner = socket.socketpair(), socket.socketpair()
        socket.send_fds(outer[0], [b"x"], [inner[1].fileno()])
        inner[1].close()
        kept.extend((inner[0], outer))
    kept[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 10))])
"""
HOARD: Final = f"""{_KINDS}
count = 0
try:
    while count < int(sys.argv[2]):
        globals()[sys.argv[1]]()
        count += 1
except OSError:
    pass
with open("{FILE}.new", "w") as file:
    file.write(str(count))
os.rename("{FILE}.new", "{FILE}")
time.sleep(1000)
"""
ONE: Final = f"""{_KINDS}
try:
    globals()[sys.argv[1]]()
except OSError as error:
    print(error.strerror)
"""
