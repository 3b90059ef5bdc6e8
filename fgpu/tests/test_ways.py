"""Ways beside the hook, in real containers: held to the share all the same, or refused at launch in words."""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fgpu.mounts import BUILD
from fgpu.tests.containers import Container, ImageFile, docker, import_image, tools
from fgpu.tests.host import Host
from hostworker.enforcement.enforcer import NOT_HOOKED, Enforcer
from hostworker.enforcement.programs import Programs
from hostworker.privileged.processes import hook_inodes, starts_hooked
from hostworker.runtime_protocol import EnforcementError
from tests.debian import unpack
from tests.wait import until

pytestmark = pytest.mark.docker

# Of the file itself, and effective at once: version 2 of the attribute, CAP_NET_BIND_SERVICE. A child of it is trusted
# no more than a setuid program is: glibc's secure mode.
CAPABLE = struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0).decode()
HOOKLESS = {"entry-musl": "/lib/ld-musl-", "entry-static": "/opt/entry-static"}  # programs, and who loads them
if platform.machine() == "x86_64":
    HOOKLESS["entry-i386"] = "/lib/ld-linux.so.2"
PROGRAMS = Programs(build=BUILD, store=BUILD.parent)
WORK = "1000"


@pytest.fixture(scope="module")
def image(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """This machine's programs, and with them others of all kinds, with the loaders that these need."""
    folder = tmp_path_factory.mktemp("loaders")
    unpack("musl", folder)
    libc = next(folder.glob("lib/*-linux-musl/libc.so"))
    smi = built / "sim/nvidia-smi"
    files = [
        *tools(),
        *(ImageFile(f"/opt/{name}", built / "test" / name) for name in ("entry", *HOOKLESS)),
        ImageFile(f"/lib/ld-musl-{platform.machine()}.so.1", libc),
        ImageFile("/opt/setuid-smi", smi, mode=0o4755),
        ImageFile("/opt/capable-smi", smi, headers={"SCHILY.xattr.security.capability": CAPABLE}),
    ]
    if "entry-i386" in HOOKLESS:
        unpack("libc6-i386", folder)
        names = ("ld-linux.so.2", "libc.so.6")
        files += [ImageFile(f"/lib/{name}", next(folder.glob(f"**/lib32/{name}"))) for name in names]
    with import_image(files) as name:
        yield name


@contextmanager
def started(image: str, host: Host, *command: str) -> Iterator[Container]:
    container = Container(image, host.session(), command=command)
    try:
        yield container
    finally:
        docker("rm", "-f", container.id)


@pytest.fixture
def container(image: str, host: Host) -> Iterator[Container]:
    with started(image, host, "sleep", "600") as container:
        yield container


@pytest.mark.parametrize("program", ["setuid-smi", "capable-smi"])
def test_a_program_with_rights_of_its_own_is_held(container: Container, program: str) -> None:
    """The loader ignores LD_PRELOAD and the like for it, and not the file that the platform binds."""

    def shown(path: str) -> str:
        return docker("exec", "-u", WORK, container.id, "env", "LD_SHOW_AUXV=1", path).stdout

    plain, secure = shown("nvidia-smi"), shown(f"/opt/{program}")
    assert ("AT_SECURE" in plain, "AT_SECURE" in secure) == (True, False)
    assert "/ 2048MiB" in plain
    assert "/ 2048MiB" in secure


def entry_of(container: Container) -> tuple[int, int]:
    """Return the pids, as the host sees them, of the container's init and of what the image starts with."""
    main = int(docker("inspect", "-f", "{{.State.Pid}}", container.id).stdout)
    [entry] = until(lambda: Path(f"/proc/{main}/task/{main}/children").read_text().split())
    return main, int(entry)


def test_an_image_that_loads_the_hook_is_accepted(image: str, host: Host) -> None:
    with started(image, host, "/opt/entry") as container:
        assert starts_hooked(entry_of(container)[0], PROGRAMS.hook_inodes())


@pytest.mark.parametrize(("program", "loader"), HOOKLESS.items())
def test_an_image_that_cannot_have_the_hook_is_refused(
    image: str, host: Host, tmp_path: Path, program: str, loader: str
) -> None:
    """ENFORCEMENT_FAILED, with this sentence. In a session that runs, the watchdog finds such a process."""
    with started(image, host, f"/opt/{program}") as container:
        main, entry = entry_of(container)
        with pytest.raises(EnforcementError) as caught:
            Enforcer(PROGRAMS, tmp_path).verify(("any", 1), main)
        assert str(caught.value) == NOT_HOOKED
        assert loader in Path(f"/proc/{entry}/maps").read_text()
        assert hook_inodes(entry) == frozenset()
