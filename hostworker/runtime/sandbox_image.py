"""The image of a sandbox: one static program of 129 bytes that waits for ever. Made here, so no registry is asked."""

import io
import platform
import struct
import tarfile
from typing import Final

REPOSITORY: Final = "gpuplatform/sandbox"
TAG: Final = "1"  # raise it when the content changes
IMAGE: Final = f"{REPOSITORY}:{TAG}"
PROGRAM: Final = "/pause"

# again: mov eax, 34 (SYS_pause); syscall; jmp again
WAIT_FOR_EVER: Final = bytes.fromhex("b822000000 0f05 ebf7")
MACHINE: Final = "x86_64"  # the only one that the program is written for
BASE: Final = 0x400000  # where it is loaded
FILE_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")  # Elf64_Ehdr of elf.h
PROGRAM_HEADER: Final = struct.Struct("<IIQQQQQQ")  # Elf64_Phdr


def is_possible() -> bool:
    """Return whether the program runs on this machine."""
    return platform.machine() == MACHINE


def layer() -> bytes:
    """Return a tar of the image's only file."""
    content, buffer = _executable(), io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo(PROGRAM.lstrip("/"))
        entry.mode, entry.size = 0o555, len(content)
        tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _executable() -> bytes:
    """Return the program as an ELF file with one segment, which is the whole file, readable and executable."""
    headers = FILE_HEADER.size + PROGRAM_HEADER.size
    size = headers + len(WAIT_FOR_EVER)
    identity = b"\x7fELF" + bytes([2, 1, 1])  # 64 bits, little endian, version 1; struct fills up with zeros
    executable, x86_64, version = 2, 62, 1
    file_header = FILE_HEADER.pack(
        *(identity, executable, x86_64, version, BASE + headers, FILE_HEADER.size, 0, 0),
        *(FILE_HEADER.size, PROGRAM_HEADER.size, 1, 0, 0, 0),
    )
    load, read_and_execute, page = 1, 4 | 1, 4096
    return file_header + PROGRAM_HEADER.pack(load, read_and_execute, 0, BASE, BASE, size, size, page) + WAIT_FOR_EVER
