"""Prepares a container for its shares of GPUs, and checks after the start that it is held to them."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from engine.containers import VARIABLES_PATH
from fgpu.limits import parse_limits
from fgpu.mounts import ArbiterFiles, BindMount, hook_mounts, simulated_mounts
from hostworker.clusters import member_files
from hostworker.enforcement import mps, variables
from hostworker.enforcement.arbiter import Arbiter
from hostworker.enforcement.figures import NO_FIGURES, Figures
from hostworker.enforcement.folders import LIMITS, SessionFolders
from hostworker.enforcement.programs import Programs, ProgramsMissingError
from hostworker.enforcement.shares import needs_hook
from hostworker.enforcement.simulation import shared_state, trim_state, write_listing
from hostworker.privileged.base import PrivilegesError
from hostworker.privileged.host_privileges import HostPrivileges
from hostworker.runtime_protocol import ContainerSpec, EnforcementError, EnforcementSetup, GpuGrant, Key
from resources.accelerators.discovery import AcceleratorSource
from resources.gpus.tiers import Tier

logger = logging.getLogger(__name__)

ALL: Final = 100  # percent of a device's SMs
STALE: Final = "it could not when its worker registered; start the worker anew."
NOT_HOOKED: Final = (
    "The image cannot use a part of a GPU: it must be built on glibc. Ask for whole GPUs, or use another image."
)


class Enforcer:
    """Enforces the shares of one host's sessions.

    Its files are below `root`, which belongs to this host alone. `context_memory` are the bytes that the driver takes
    per process on a real GPU; `mps_folder` is the pipe folder of the host's MPS control daemon, where it runs one.
    """

    def __init__(
        self,
        programs: Programs,
        root: Path,
        *,
        context_memory: int = 0,
        mps_folder: Path | None = None,
        privileges: HostPrivileges | None = None,
        arbiter: Arbiter | None = None,
        sees_files: bool = False,
        pins_cpus: bool = True,
        accelerators: AcceleratorSource | None = None,
    ) -> None:
        """Without `privileges` this process must be root itself, and without an `arbiter` idle GPU time is lost.

        With `sees_files` the engine sees this process's files, being on this machine: then containers read their own
        figures, and get users' variables in a file. `accelerators` are the devices of this host that nothing divides.
        """
        self.programs = programs
        self.privileges = privileges or HostPrivileges()
        self.arbiter = arbiter
        self.folders = SessionFolders(root / "sessions", self.privileges)
        self.figures = Figures(self.folders, pins_cpus=pins_cpus)
        self.simulation = root / "simulation"
        self._sees_files = sees_files
        self.context_memory = context_memory
        self.accelerators = accelerators
        self._mps_folder = mps_folder

    def problem(self) -> str:
        """Return why this host cannot divide a GPU, as the rest of a sentence; "" where it can."""
        return self.privileges.problem() or self.programs.missing()

    def prepare(self, spec: ContainerSpec, image_environment: Sequence[str] = ()) -> EnforcementSetup:
        """Prepare the attempt's files and return what its container needs; safe to repeat. Raises EnforcementError.

        `image_environment` are the image's variables, each as NAME=value, where the engine's hooks would get them.
        """
        key = (spec.session, spec.attempt)
        mounts: list[BindMount] = []
        try:
            if needs_hook(spec.gpus):
                mounts += self._hook(spec)
            if any(gpu.is_simulated for gpu in spec.gpus):
                mounts += self._simulate(key, spec.gpus)
        except (ProgramsMissingError, OSError) as error:
            raise EnforcementError(f"Its share of the GPU could not be prepared: {error}") from error
        figures = self.figures.prepare(spec) if self._sees_files else NO_FIGURES
        mounts += figures.mounts
        setup = self._set_variables(spec, variables.withheld(image_environment))
        setup = replace(setup, mounts=(*mounts, *self._cluster(spec), *setup.mounts), cpus=figures.cpus)
        shared_by_mps = [gpu for gpu in spec.gpus if gpu.tier is Tier.HOOK_MPS]
        if not shared_by_mps:
            return setup
        if self._mps_folder is None:
            raise EnforcementError("Its group shares GPUs through MPS, and its host names no MPS folder.")
        mps_mounts = mps.mounts(self._mps_folder)
        return replace(setup, mounts=(*setup.mounts, *mps_mounts), environment=mps.environment(shared_by_mps))

    def keys(self) -> set[Key]:
        """Return the attempts of which there are files."""
        return self.folders.keys() | (self.arbiter.folder.keys() if self.arbiter else set())

    def written_bytes(self) -> dict[Key, int]:
        """Return what sessions have written to files of their own here; cut what all of them can write to."""
        trim_state(self.simulation)
        return self.folders.written_bytes()

    def discard(self, key: Key) -> None:
        """Remove the attempt's files; gone already is success."""
        if self.arbiter:
            self.arbiter.folder.discard(key)
        self.folders.discard(key)

    def applies_to(self, key: Key) -> bool:
        """Return whether the attempt's container must run under the hook."""
        return (self.folders.path(key) / LIMITS).exists()

    def verify(self, key: Key, main_pid: int) -> None:
        """Check that the container, just started, runs under the hook; set the limits that the driver itself keeps.

        Raises EnforcementError. A container that has ended already is left to whoever looks next.
        """
        try:
            is_hooked = self.privileges.starts_hooked(main_pid, self.programs.hook_inodes())
            if is_hooked is False:
                raise EnforcementError(NOT_HOOKED, is_host_fault=False)
            if is_hooked and (by_driver := self.folders.driver_limits(key)):
                self.privileges.limit_gpu_memory(main_pid, by_driver)
        except PrivilegesError as error:
            raise EnforcementError(f"Its share of the GPU could not be verified: {error}") from error

    def resize(self, spec: ContainerSpec, before: ContainerSpec, main_pid: int) -> None:
        """Hold the running attempt to the shares of `spec`. Raises ResizeError, and then to those of `before`."""
        key = (spec.session, spec.attempt)
        if not self.applies_to(key):
            return
        try:
            try:
                self.folders.resize(spec, before, self.context_memory, main_pid)
            finally:  # refused, too: a worker that died may have come further
                if self.arbiter:
                    self.arbiter.folder.set_lease(key, (self.folders.path(key) / LIMITS).read_text())
                if by_driver := self.folders.driver_limits(key):
                    self.privileges.limit_gpu_memory(main_pid, by_driver)
        except OSError as error:
            raise EnforcementError(f"Its share of the GPU could not be changed: {error}") from error

    def show(self, spec: ContainerSpec) -> None:
        """Show the running attempt the cores and memory that it has now."""
        if self._sees_files:
            self.figures.resize(spec)

    def _hook(self, spec: ContainerSpec) -> list[BindMount]:
        problem = self.problem()
        if problem or any(gpu.tier is Tier.NONE for gpu in spec.gpus):
            raise EnforcementError(f"Its host cannot divide a GPU: {problem or STALE}")
        limits, region = self.folders.prepare(spec, self.context_memory)
        return hook_mounts(limits, region, self.programs.installed(), self._join_arbiter(spec, limits))

    def _join_arbiter(self, spec: ContainerSpec, limits: Path) -> ArbiterFiles | None:
        """Return what the session needs to get turns; None where nothing of it is gated, or it is to go without.

        Without turns a session keeps to its share by itself, so a failure here is not one of its start.
        """
        lease = limits.read_text()
        if self.arbiter is None or all(limit.sm_percent == ALL for limit in parse_limits(lease)):
            return None
        try:
            files = self.arbiter.folder.prepare((spec.session, spec.attempt), lease)
        except OSError as error:
            logger.error("session %s: gets no turns on its GPUs, only its share: %s", spec.session, error)
            return None
        self.arbiter.hold()
        return files

    def _set_variables(self, spec: ContainerSpec, of_image: Mapping[str, str]) -> EnforcementSetup:
        """Write what sets variables inside the container alone, where the engine sees the file."""
        wanted = {**of_image, **spec.variables}
        if not wanted or not self._sees_files:
            return EnforcementSetup()
        try:
            path = self.folders.write_variables((spec.session, spec.attempt), variables.script(wanted))
        except OSError as error:
            raise EnforcementError(f"Its environment variables could not be written: {error}") from error
        return EnforcementSetup(
            mounts=(BindMount(path, VARIABLES_PATH),), sets_variables=True, withheld=tuple(of_image)
        )

    def _cluster(self, spec: ContainerSpec) -> tuple[BindMount, ...]:
        """Write what a member of a cluster finds inside it, where the engine sees the files."""
        if spec.cluster is None or not self._sees_files:
            return ()
        try:
            return member_files.write(self.folders.path((spec.session, spec.attempt)), spec.cluster, len(spec.gpus))
        except OSError as error:
            raise EnforcementError(f"The files of its cluster could not be written: {error}") from error

    def _simulate(self, key: Key, gpus: Sequence[GpuGrant]) -> list[BindMount]:
        listing = self.folders.path(key) / "gpus.conf"
        if not listing.exists():
            write_listing(listing, {gpu.uuid: gpu.memory_bytes for gpu in gpus})
        return simulated_mounts(listing, shared_state(self.simulation), self.programs.installed())
