"""The table of the driver's functions, functions.tsv: what the hook does about each of them, and why.

`python functions.py names` writes what the hook's sources read of it; `python -m fgpu.functions check cuda.h ...`
compares it with NVIDIA's headers, which the wheel `nvidia-cuda-runtime` of PyPI has: they are no part of this project.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("functions.tsv")
# limited: charged to the account, or frees what is; gated: waits for its turn, or for the gate; viewed: shows the
# share; passed: the driver's own; refused: not offered. All but the passed ones have a wrapper in the hook.
CLASSES = ("limited", "gated", "viewed", "passed", "refused")
_DECLARED = re.compile(r"\bCUDAAPI\s+(cu[A-Z]\w*)\s*\(")
_ALIAS = re.compile(r"^\s*#\s*define\s+cu[A-Z]\w*\s+(?:__CUDA_API_(PTSZ|PTDS)\()?\s*(cu[A-Z]\w*)", re.MULTILINE)
_INLINE = re.compile(r"static inline CUresult (cu[A-Z]\w*)")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Function:
    """A function that the driver exports."""

    name: str
    kind: str
    reason: str

    @property
    def stem(self) -> str:
        """The name without its version and its flavour of default stream."""
        return re.sub(r"(_v\d+)?(_pts[zd]|_ptds)?$", "", self.name)


def read_table(path: Path = TABLE) -> list[Function]:
    """Raise ValueError where the table is not one line for each name, in order, with a known class and a reason."""
    lines = path.read_text().splitlines()[1:]
    functions = [Function(*line.split("\t")) for line in lines]
    names = [function.name for function in functions]
    if names != sorted(set(names)):
        raise ValueError("functions.tsv: names are not unique and in order")
    if bad := [function.name for function in functions if function.kind not in CLASSES or not function.reason.strip()]:
        raise ValueError(f"functions.tsv: no class or no reason: {', '.join(bad)}")
    return functions


def guarded_stems(functions: Iterable[Function]) -> list[str]:
    """Return the stems of what is not passed: whatever begins so and is not known may do the same, and is withheld."""
    stems = {function.stem for function in functions if function.kind != "passed"}
    return sorted(stem for stem in stems if not any(stem != other and stem.startswith(other) for other in stems))


def exceptions(functions: Sequence[Function]) -> list[str]:
    """Return what is passed although its name begins with a guarded stem."""
    stems = tuple(guarded_stems(functions))
    return [function.name for function in functions if function.kind == "passed" and function.name.startswith(stems)]


def format_names(functions: Sequence[Function]) -> str:
    """Return the C header: two strings of names, each name ended by a NUL, the last one by another."""
    text = "/* Made from functions.tsv by functions.py. */\n"
    for variable, names in (("guarded", guarded_stems(functions)), ("harmless", exceptions(functions))):
        text += f"static const char {variable}[] =\n" + "".join(f'    "{name}\\0"\n' for name in names) + '    "";\n'
    return text


def names_of(header: str) -> set[str]:
    """Return the names of the functions that a header of NVIDIA's declares, of all versions and flavours."""
    code = _COMMENT.sub("", header)
    inline = set(_INLINE.findall(code))
    names = set(_DECLARED.findall(code))
    for flavour, name in _ALIAS.findall(code):
        names |= {name, f"{name}_{flavour.lower()}"} if flavour else {name}
    return names - inline


def main(arguments: list[str]) -> int:
    functions = read_table()
    if arguments == ["names"]:
        sys.stdout.write(format_names(functions))
        return 0
    if not arguments or arguments[0] != "check":
        raise SystemExit(__doc__)
    declared = set().union(*(names_of(Path(path).read_text()) for path in arguments[1:]))
    missing = sorted(declared - {function.name for function in functions})
    sys.stdout.write(f"{len(declared)} declared, {len(missing)} not in the table\n")
    sys.stdout.write("".join(f"  {name}\n" for name in missing))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
