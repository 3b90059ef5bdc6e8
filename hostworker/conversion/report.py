"""What a conversion would save, or has saved, as a value for pages and the API. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from hostworker.conversion.base import Change
from hostworker.conversion.changes import How, LayerPlan
from hostworker.conversion.packages import Manager, PackageChanges, Records, manually_installed, package_changes
from hostworker.conversion.recipe import recipe
from hostworker.conversion.suspicions import suspicion

MAX_LISTED: Final = 50  # files, suspicions and packages of a kind; the rest is counted
MAX_GROUPS: Final = 20
_GROUP_DEPTH: Final = 3  # components of a directory that stands for all below it
_GENERATED: Final = ("/__pycache__/", "/var/log/", "/var/lib/dpkg/", "/var/lib/apt/", "/var/cache/")
_ALWAYS_TOUCHED: Final = {"/etc/ld.so.cache", "/var/lib/systemd"}


@dataclass(slots=True)
class Survey:
    """Collects what there is to tell while the changes are read: an Observer of `layer`."""

    records: Records = field(default_factory=Records)
    files: dict[str, int] = field(default_factory=dict)  # bytes by path
    suspicions: dict[str, str] = field(default_factory=dict)

    def wants(self, path: str, size_bytes: int) -> bool:
        return self.records.wants(path)

    def saw(self, path: str, size_bytes: int, content: bytes) -> None:
        if not content and not size_bytes:
            return
        self.files[path] = size_bytes
        if self.records.wants(path):
            self.records.note(path, content)
        elif words := suspicion(path, size_bytes, content):
            self.suspicions[path] = words


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedReport:
    """The report as JSON takes it, and the recipe."""

    report: dict[str, Any]
    recipe: str


def render(
    survey: Survey, changes: Iterable[Change], plan: LayerPlan, *, base: str, base_user: str, is_partial: bool = False
) -> RenderedReport:
    """Return what the survey found. With `is_partial` the reading was cut short, and amounts are lower bounds."""
    included = [change for change in changes if not plan.is_excluded(change.path)]
    packages = package_changes(included, survey.records)
    own = _own_files(survey)
    deleted = [piece.path for piece in plan.pieces if piece.how is How.DELETED]
    report = {
        "packages": {manager.value: _listed(found) for manager, found in packages.items()},
        "groups": _groups(survey.files, deleted),
        "own_files": own[:MAX_LISTED],
        "own_file_count": len(own),
        "file_count": len(survey.files),
        "size_bytes": sum(survey.files.values()),
        "deleted_count": len(deleted),
        "suspicions": [{"path": path, "what": what} for path, what in sorted(survey.suspicions.items())[:MAX_LISTED]],
        "suspicion_count": len(survey.suspicions),
        "left_out": [{"path": path, "count": count} for path, count in sorted(plan.left_out.items())[:MAX_LISTED]],
        "is_partial": is_partial,
    }
    added = packages.get(Manager.APT, PackageChanges()).added
    text = recipe(
        base=base,
        base_user=base_user,
        packages=packages,
        asked_of_apt=manually_installed(added, survey.records),
        own_files=own,
        own_file_count=len(own),
    )
    return RenderedReport(report=_storable(report), recipe=_storable(text))


def _storable(value: Any) -> Any:
    """Return the value without what PostgreSQL's JSON refuses, as names of files may be: no UTF-8, and NUL."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode().replace("\0", "?")
    if isinstance(value, dict):
        return {_storable(key): _storable(each) for key, each in value.items()}
    return [_storable(each) for each in value] if isinstance(value, list | tuple) else value


def _listed(changes: PackageChanges) -> dict[str, Any]:
    return {
        kind: [asdict(package) for package in getattr(changes, kind)[:MAX_LISTED]]
        for kind in ("added", "updated", "removed")
    } | {"count": sum(len(getattr(changes, kind)) for kind in ("added", "updated", "removed"))}


def _own_files(survey: Survey) -> list[str]:
    """Return the changed files that neither belong to a package nor are written by package managers themselves."""
    owned = survey.records.owned
    return sorted(
        path
        for path in survey.files
        if path not in owned
        and path not in _ALWAYS_TOUCHED
        and not any(part in path for part in _GENERATED)
        and ".dist-info/" not in path
        and "/conda-meta/" not in path
    )


def _groups(files: dict[str, int], deleted: Iterable[str]) -> list[dict[str, Any]]:
    """Return the directories with the most bytes, and the rest as one group called ""."""
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    gone: Counter[str] = Counter()
    for path, size in files.items():
        sizes[_group(path)] += size
        counts[_group(path)] += 1
    for path in deleted:
        gone[_group(path)] += 1
    names = sorted(counts.keys() | gone.keys(), key=lambda name: (-sizes[name], name))
    shown = [(name, [name]) for name in names[:MAX_GROUPS]]
    if len(names) > MAX_GROUPS:
        shown.append(("", names[MAX_GROUPS:]))
    return [
        {
            "path": title,
            "file_count": sum(counts[name] for name in members),
            "size_bytes": sum(sizes[name] for name in members),
            "deleted_count": sum(gone[name] for name in members),
        }
        for title, members in shown
    ]


def _group(path: str) -> str:
    folders = path.split("/")[1:-1]
    return "/" + "/".join(folders[:_GROUP_DEPTH])
