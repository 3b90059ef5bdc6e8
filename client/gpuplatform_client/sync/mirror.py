"""What makes a tree equal another: the plan, without I/O, and its execution."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from gpuplatform_client.errors import ClientError
from gpuplatform_client.sync.filters import PathFilter
from gpuplatform_client.sync.sftp_packets import SftpBrokenError
from gpuplatform_client.sync.trees import UNSURE_BYTES, NodeKind, Scan, Tree, TreeNode, digest, part_of, scan

IsSame = Callable[[str, TreeNode, TreeNode], bool]  # of two files of one size


class StepKind(StrEnum):
    """What is done to a path of the target."""

    MAKE = "make"
    COPY = "copy"
    REMOVE = "remove"
    REMOVE_DIRECTORY = "remove_directory"


@dataclass(frozen=True, slots=True)
class Step:
    """An act on a path."""

    act: StepKind
    path: str


@dataclass(slots=True)
class MirrorResult:
    """What was done, or would be."""

    source: Scan
    steps: list[Step] = field(default_factory=list)
    copied_bytes: int = 0
    unchanged: int = 0
    skipped: list[str] = field(default_factory=list)  # links and devices
    problems: list[str] = field(default_factory=list)


def plan(source: Scan, target: Scan, *, deletes: bool, is_same: IsSame) -> MirrorResult:
    """Return what makes the target equal the source; only with `deletes` it loses what the source does not have."""
    result = MirrorResult(source)
    surplus = {path for path in target.entries if path not in source.entries} if deletes else set()
    made: list[Step] = []
    copied: list[Step] = []
    for path, entry in sorted(source.entries.items()):
        there = target.entries.get(path)
        if entry.kind == NodeKind.OTHER:
            result.skipped.append(path)
        elif path in target.occupied and entry.kind != NodeKind.DIRECTORY:
            result.problems.append(f"{path}: has something there that is left out, and stays a directory.")
        elif entry.kind == NodeKind.DIRECTORY:
            if there is None or there.kind != NodeKind.DIRECTORY:
                surplus.update({path} if there else ())
                made.append(Step(StepKind.MAKE, path))
        elif there and there.kind == NodeKind.DIRECTORY:
            if not deletes:
                result.problems.append(f"{path}: is a directory there; --delete replaces it.")
                continue
            surplus.add(path)
            copied.append(Step(StepKind.COPY, path))
        elif there and there.kind == NodeKind.FILE and there.size == entry.size and is_same(path, entry, there):
            result.unchanged += 1
        else:
            copied.append(Step(StepKind.COPY, path))
    result.steps = [*_removals(surplus, target), *made, *copied]
    return result


def _removals(surplus: set[str], target: Scan) -> Iterator[Step]:
    """Yield the removal of what is too much, directories last, but for those with what is left out."""
    for path in sorted(surplus, reverse=True):
        if target.entries[path].kind != NodeKind.DIRECTORY:
            yield Step(StepKind.REMOVE, path)
        elif path not in target.occupied:
            yield Step(StepKind.REMOVE_DIRECTORY, path)


@dataclass(frozen=True, slots=True)
class Mirror:
    """A source, a target, and how one is made equal the other."""

    source: Tree
    target: Tree
    patterns: tuple[str, ...] = ()
    by_gitignore: bool = False
    deletes: bool = False
    by_checksum: bool = False

    def run(self, show: Callable[[Step], None], *, is_dry: bool = False) -> MirrorResult:
        """Make the target equal the source, or say what that takes. Raises OSError and ClientError.

        What fails of one file alone is in `problems`.
        """
        left_out = PathFilter(self.patterns, by_gitignore=self.by_gitignore)
        source = scan(self.source, left_out, learns=True)  # whole, before anything is deleted
        if not is_dry:
            self.target.make_root()
        target = scan(self.target, left_out, learns=False) if self.target.exists() else Scan()
        result = plan(source, target, deletes=self.deletes, is_same=self._is_same)
        if not is_dry:  # first, since directories that are removed are empty
            used = {part_of(step.path, source.entries[step.path]) for step in result.steps if step.act == StepKind.COPY}
            self._clean(target.parts - used)
        for step in result.steps:
            if not is_dry and not self._is_done(step, source, target, result):
                continue
            show(step)
            result.copied_bytes += source.entries[step.path].size if step.act == StepKind.COPY else 0
        return result

    def source_state(self) -> Scan:
        """Return what the source has, to see whether it changes."""
        return scan(self.source, PathFilter(self.patterns, by_gitignore=self.by_gitignore), learns=True)

    def _is_same(self, path: str, entry: TreeNode, there: TreeNode) -> bool:
        if not self.by_checksum:
            return entry.mtime == there.mtime
        return digest(self.source.read(path)) == digest(self.target.read(path))

    def _is_done(self, step: Step, source: Scan, target: Scan, result: MirrorResult) -> bool:
        """Carry a step out; return whether it has succeeded."""
        acts = {
            StepKind.MAKE: self.target.make_directory,
            StepKind.REMOVE: self.target.remove,
            StepKind.REMOVE_DIRECTORY: self.target.remove_directory,
        }
        try:
            if step.act == StepKind.COPY:
                self._copy(step.path, source.entries[step.path], target)
            else:
                acts[step.act](step.path)
        except SftpBrokenError:
            raise
        except (OSError, ClientError) as error:
            result.problems.append(f"{step.path}: {getattr(error, 'strerror', None) or error}")
            return False
        return True

    def _copy(self, path: str, entry: TreeNode, target: Scan) -> None:
        """Write a file beside its place, from where an earlier try ended, and put it there once it is whole."""
        part = part_of(path, entry)
        offset = max(0, min(self._part_size(part), entry.size) - UNSURE_BYTES) if part in target.parts else 0
        reached = offset

        def counted(pieces: Iterable[bytes]) -> Iterator[bytes]:
            nonlocal reached
            for piece in pieces:
                reached += len(piece)
                yield piece

        self.target.append(part, counted(self.source.read(path, offset)), offset, entry)
        if reached != entry.size:
            self.target.remove(part)
            raise ClientError("has changed while it was copied.")
        self.target.replace(part, path)

    def _part_size(self, part: str) -> int:
        directory, _, name = part.rpartition("/")
        return next((entry.size for each, entry in self.target.listing(directory) if each == name), 0)

    def _clean(self, parts: Iterable[str]) -> None:
        """Remove parts of files that have changed since."""
        for part in parts:
            self.target.remove(part)
