"""No valid limit, no CUDA: however the files are wrong, cuInit says "system not ready", and NVML gives an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fgpu.limits import REGION_BYTES
from fgpu.tests.host import SYSTEM_NOT_READY, UUIDS, Host, Session, limit
from fgpu.tests.region import read_note

HEAD = "version=2\npolicy=enforce\nsharing=cap\npinned_bytes=0\n"
GOOD = f"{HEAD}dev={UUIDS[0]} mem_bytes=2147483648 sm_percent=25.00 phase_ms=0 ctx_bytes=0\nend\n"
NO_PERMISSION = "4"


def assert_closed(session: Session) -> None:
    with session.probe(enter=False) as probe:
        assert probe.code("init") == SYSTEM_NOT_READY
        assert probe.alloc(1) == SYSTEM_NOT_READY
        assert probe.code("info") == SYSTEM_NOT_READY
        assert probe.code("multi 1") == SYSTEM_NOT_READY
        words = probe.ask("nvml")
        assert (words[0], words[3], words[6]) == (NO_PERMISSION, NO_PERMISSION, NO_PERMISSION)


def write(session: Session, text: str) -> None:
    session.limits.unlink()
    session.limits.write_text(text)
    session.limits.chmod(0o444)


def test_the_good_file_is_accepted(host: Host) -> None:
    session = host.session()
    write(session, GOOD)
    with session.probe() as probe:
        assert probe.alloc(1) == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "end\n",
        "nonsense",
        GOOD[: GOOD.index("end")],  # cut short
        GOOD[: len(GOOD) // 2],
        GOOD + "more\n",
        GOOD + "end\n",
        GOOD.replace("version=2", "version=1"),
        GOOD.replace("sharing=cap", "sharing=caps"),
        GOOD.replace("sharing=cap", "sharing="),
        GOOD.replace("sharing=cap\n", ""),
        GOOD.replace("pinned_bytes=0", "pinned_bytes=-1"),
        GOOD.replace("pinned_bytes=0\n", ""),
        GOOD.replace("enforce", "observe"),
        GOOD.replace("policy=enforce\n", ""),
        GOOD.replace(UUIDS[0], "0"),
        GOOD.replace(UUIDS[0], UUIDS[0][:-1] + "x"),
        GOOD.replace("mem_bytes=2147483648", "mem_bytes=0"),
        GOOD.replace("mem_bytes=2147483648", "mem_bytes=-1"),
        GOOD.replace("mem_bytes=2147483648", "mem_bytes=2GiB"),
        GOOD.replace("mem_bytes=2147483648", "mem_bytes=99999999999999999999999"),
        GOOD.replace("mem_bytes=2147483648 ", ""),
        GOOD.replace("mem_bytes=", "memory="),
        GOOD.replace("sm_percent=25.00", "sm_percent=0.00"),
        GOOD.replace("sm_percent=25.00", "sm_percent=100.01"),
        GOOD.replace("sm_percent=25.00", "sm_percent=25.123"),
        GOOD.replace("sm_percent=25.00", "sm_percent=25."),
        GOOD.replace("2147483648 sm_percent=25.00", "02147483648 sm_percent=25.0"),  # as long as it should be
        GOOD.replace("sm_percent=25.00", "sm_percent=25.00 sm_percent=100.00"),
        GOOD.replace("phase_ms=0", "phase_ms=100"),
        GOOD.replace("ctx_bytes=0", "ctx_bytes=2147483648"),
        GOOD.replace("end\n", GOOD.splitlines()[4] + "\nend\n"),  # the same GPU twice
        GOOD.replace("enforce", "enfor\0ce"),
        GOOD + "x" * 9000,
    ],
)
def test_a_garbled_limits_file_closes_everything(host: Host, text: str) -> None:
    session = host.session()
    write(session, text)
    assert_closed(session)


def replace_by_folder(session: Session) -> None:
    session.limits.unlink()
    session.limits.mkdir()


def replace_by_link(session: Session) -> None:
    target = session.limits.with_name("elsewhere")
    session.limits.rename(target)
    session.limits.symlink_to(target)


BREAKAGES: dict[str, Callable[[Session], object]] = {
    "no limits file": lambda session: session.limits.unlink(),
    "limits file is a folder": replace_by_folder,
    "limits file is a link": replace_by_link,
    "limits file is writable": lambda session: session.limits.chmod(0o644),
    "no region": lambda session: session.region.unlink(),
    "region too small": lambda session: session.region.write_bytes(bytes(REGION_BYTES - 1)),
    "region too large": lambda session: session.region.write_bytes(bytes(REGION_BYTES + 1)),
    "region garbled": lambda session: session.region.write_bytes(b"garbage!" + bytes(REGION_BYTES - 8)),
    "region of another version": lambda session: session.region.write_bytes(b"FGPU\2\0\0\0" + bytes(REGION_BYTES - 8)),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_broken_file_closes_everything(host: Host, name: str) -> None:
    session = host.session()
    BREAKAGES[name](session)
    assert_closed(session)


def test_a_gpu_without_a_limit_closes_cuda(host: Host) -> None:
    host.configure(gpus=2)
    session = host.session(limit(UUIDS[0]))
    with session.probe(enter=False) as probe:
        assert probe.code("init") == SYSTEM_NOT_READY
        assert "no limit" in read_note(session.region)
    with session.probe(CUDA_VISIBLE_DEVICES="0") as probe:
        assert probe.alloc(1) == 0


def test_a_gpu_without_a_limit_has_no_nvml_figures(host: Host) -> None:
    session = host.session(limit(UUIDS[1]))
    with session.probe(enter=False) as probe:
        assert probe.ask("nvml")[0] == NO_PERMISSION


def test_the_installed_library_takes_no_paths_from_the_environment(host: Host) -> None:
    session = host.session()
    session.hook = "libfgpu.so"
    with session.probe(enter=False) as probe:
        assert probe.code("init") == SYSTEM_NOT_READY  # there is no /run/fgpu here
        assert probe.ask("nvml")[0] == NO_PERMISSION


def test_programs_without_cuda_notice_nothing(host: Host) -> None:
    session = host.session()
    session.limits.unlink()
    process = session.start("test/probe")
    output, _ = process.communicate("")
    assert (output, process.returncode) == ("", 0)
