"""Checks of this machine's GPUs: which there are, how containers get them, and whether they can be divided."""

import os
import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Final

from django.conf import settings

from hostworker.runtime.factory import find_accelerators, get_enforcer
from hostworker.runtime.gpu_access import choose
from operations.doctor import advice
from operations.doctor import driver_gpus as gpus
from operations.doctor.findings import Finding, Verdict
from operations.doctor.services import docker_client
from resources.checks import check_simulated_gpus
from resources.gpus import simulated as simulated_gpus
from resources.gpus.nvml_topology import nvml_topology
from resources.hosts import kinds
from resources.models import Gpu, GpuMeasurement, Host

DEV: Final = Path("/dev")
TOOLKIT_HOOK: Final = "nvidia-container-runtime-hook"
SPECIFY: Final = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, on Docker 25 and later"
RELOAD: Final = "see `nvidia-smi`; after an upgrade of the driver or the kernel, restart the machine"
HOW_FOUND: Final = "see docs/hosts.md, accelerators of other vendors"
NO_GPU: Final = "no NVIDIA GPU here"


def models() -> Finding:
    """Return which GPUs there are, real or simulated."""
    found = gpus.names()
    if found:
        return Finding(Verdict.OK, f"{len(found)} by NVML: {', '.join(found)}")
    if problem := gpus.problem():
        return Finding(Verdict.WARN, f"the NVIDIA driver does not answer: {problem}", RELOAD)
    wrong = check_simulated_gpus()
    if wrong:
        return Finding(Verdict.FAIL, wrong[0].msg, wrong[0].hint or "")
    if settings.COMPUTE_SIMULATED_GPUS:
        return Finding(Verdict.OK, f"SIMULATED: {settings.COMPUTE_SIMULATED_GPUS}")
    if find_accelerators().accelerators:  # named by `accelerators`
        return Finding(Verdict.OK, NO_GPU)
    return Finding(Verdict.WARN, NO_GPU, advice.without_gpu())


def connections() -> Finding:
    """Return how the GPUs are connected, by which those of one session are chosen."""
    found = gpus.names()
    if not found and not check_simulated_gpus():
        simulated = simulated_gpus.declared(settings.COMPUTE_SIMULATED_GPUS)
        topology, count = simulated_gpus.topology(simulated), sum(part.count for part in simulated)
    else:
        topology, count = nvml_topology(range(len(found))), len(found)
    if count < 2:
        return Finding(Verdict.OK, "fewer than two GPUs")
    if not topology:
        return Finding(Verdict.OK, "not available: a session with several GPUs gets the first ones that are free")
    return Finding(Verdict.OK, topology.summary())


def access() -> Finding:
    """Return how the engine is asked for GPUs: by CDI, or by the request that NVIDIA's runtime hook answers."""
    found = gpus.find()
    if not found:
        return Finding(Verdict.OK, NO_GPU)
    with closing(docker_client()) as client:
        info = client.info()
    chosen = choose(info, [gpu.uuid for gpu in found])
    if chosen.uses_cdi:
        return Finding(Verdict.OK, "containers get them by CDI (nvidia.com/gpu)")
    if shutil.which(TOOLKIT_HOOK) is None and "nvidia" not in (info.get("Runtimes") or {}):
        return Finding(Verdict.FAIL, "containers cannot get them: NVIDIA's container toolkit is not found", SPECIFY)
    if info.get("CgroupDriver") != "systemd":
        return Finding(Verdict.OK, "containers get them by the legacy request; the engine does not know them by CDI")
    if lost := [node for node in chosen.device_nodes if not _has_link(Path(node))]:
        text = f"by the legacy request, and systemctl daemon-reload takes them away: no link in /dev/char to {lost[0]}"
        return Finding(Verdict.WARN, text, f"nvidia-ctk system create-dev-char-symlinks --create-all; or {SPECIFY}")
    return Finding(Verdict.OK, "containers get them by the legacy request; their nodes are named to the engine")


def accelerators(*, is_database_there: bool) -> Finding:
    """Return which devices of other vendors there are, and why others are not lent."""
    found = find_accelerators()
    counts = Counter(f"{each.kind} ({each.model})" for each in found.accelerators)
    text = ", ".join(f"{count} x {name}" for name, count in counts.items()) or "none beside NVIDIA's"
    problems = list(found.problems)
    host = Host.objects.filter(name=settings.COMPUTE_HOST_NAME).select_related("group") if is_database_there else ()
    for each in host:
        problems += kinds.left_out([device.kind for device in found.accelerators], each.group)
    if problems:
        return Finding(Verdict.WARN, f"{text}. {' '.join(problems)}", HOW_FOUND)
    return Finding(Verdict.OK, text)


def nodes() -> Finding:
    """Return whether the device nodes are there, and stay."""
    found = gpus.find()
    if not found:
        return Finding(Verdict.OK, NO_GPU)
    wanted = ["nvidiactl", "nvidia-uvm", *(f"nvidia{gpu.minor}" for gpu in found)]
    if missing := [name for name in wanted if not (DEV / name).exists()]:
        return Finding(Verdict.WARN, f"/dev/{missing[0]} is missing", "nvidia-modprobe -c 0 -u, at each boot")
    if not all(gpu.is_persistent for gpu in found):
        text = "the driver is unloaded while nobody uses it, and the next start waits for seconds"
        return Finding(Verdict.WARN, text, "systemctl enable --now nvidia-persistenced")
    return Finding(Verdict.OK, "device nodes are there, and the driver stays loaded")


def division(*, is_database_there: bool) -> Finding:
    """Return whether this host can divide its GPUs, and how shares are held."""
    if problem := get_enforcer().problem():
        return Finding(
            Verdict.WARN,
            f"this host lends whole GPUs only: {problem}",
            "`make fgpu`; as root, or with the helper of docs/hosts.md",
        )
    if not is_database_there:
        return Finding(Verdict.OK, "the hook is built")
    here = Gpu.objects.filter(host__name=settings.COMPUTE_HOST_NAME, is_present=True)
    measured = GpuMeasurement.objects.filter(gpu__in=here).select_related("gpu__host")
    if any(each.is_outdated for each in measured):
        text = "the hook is built; the driver is another one since its shares were measured"
        return Finding(Verdict.WARN, text, "`manage.py doctor --gpu` measures them again")
    found = here.values_list("tier", flat=True)
    return Finding(Verdict.OK, f"the hook is built; tiers: {', '.join(sorted(set(found))) or 'no GPU registered yet'}")


def turns() -> Finding:
    """Return whether an arbiter shares out GPU time on this host."""
    arbiter = get_enforcer().arbiter
    if arbiter is None or not arbiter.folder.keys():
        return Finding(Verdict.OK, "no session here shares a GPU; its arbiter starts with the first")
    if found := arbiter.running():
        return Finding(Verdict.OK, f"shared out by the arbiter, pid {found.pid}, at {arbiter.folder.root}")
    text = "the arbiter does not run: sessions keep to their shares, and what others leave idle is lost"
    return Finding(Verdict.WARN, text, f"the host worker starts it; why it ends is in {arbiter.folder.root}/log")


def _has_link(node: Path) -> bool:
    """Return whether systemd finds the device by its numbers."""
    try:
        device = node.stat().st_rdev
    except OSError:
        return False
    return (DEV / "char" / f"{os.major(device)}:{os.minor(device)}").exists()
