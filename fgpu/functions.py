"""The table of the driver's functions, functions.tsv: what the hook does about each of them, and why.

`python functions.py names` writes what the hook's sources read of it; `python -m fgpu.functions check cuda.h ...`
compares it with NVIDIA's headers, which the wheels `nvidia-cuda-runtime` and `nvidia-nvml-dev` of PyPI have: they are
no part of this project.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("functions.tsv")
# limited: charged to the account, or frees what is; gated: waits for its turn, or for the gate; viewed: shows the
# share; passed: the driver's own; refused: not offered; denied: for administrators of the GPU alone. All but the passed
# ones have a wrapper in the hook.
CLASSES = ("limited", "gated", "viewed", "passed", "refused", "denied")
# What a function of NVML that is not in the table tells or changes, by its name.
SHAPES = (
    *("Accounting", "Memory", "Metrics", "Process", "Sample", "Usage", "Util"),
    *("Destroy", "DeviceClear", "DeviceReset", "DeviceSet", "InstanceCreate", "VgpuInstance"),
)
_DECLARED = re.compile(r"\b(?:CUDAAPI|DECLDIR)\s+(?:char\s*\*\s*)?((?:cu|nvml)[A-Z]\w*)\s*\(")
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


def _is_like(name: str, stem: str) -> bool:
    """Tell whether a name is one that the stem withholds; route.c asks the same."""
    return name.startswith(stem) or (name.startswith("nvml") and stem[0].isupper() and stem in name)


def guarded_stems(functions: Iterable[Function]) -> list[str]:
    """Return what names of functions to be withheld begin with, those of NVML have in them: whatever is like one and
    is not known may do the same."""
    stems = {function.stem for function in functions if function.kind != "passed"}.union(SHAPES)
    return sorted(stem for stem in stems if not any(stem != other and _is_like(stem, other) for other in stems))


def exceptions(functions: Sequence[Function]) -> list[str]:
    """Return what is passed although a guarded stem would withhold it."""
    stems = guarded_stems(functions)
    passed = [function.name for function in functions if function.kind == "passed"]
    return [name for name in passed if any(_is_like(name, stem) for stem in stems)]


def format_names(functions: Sequence[Function]) -> str:
    """Return the C header: two strings of names, each name ended by a NUL, the last one by another; and lists of
    functions, for a macro to be applied to each."""
    text = "/* Made from functions.tsv by functions.py. */\n"
    for variable, names in (("guarded", guarded_stems(functions)), ("harmless", exceptions(functions))):
        text += f"__attribute__((unused)) static const char {variable}[] =\n"
        text += "".join(f'    "{name}\\0"\n' for name in names) + '    "";\n'
    for macro, prefix, kinds in (
        ("CUDA_REFUSED", "cu", ("refused",)),
        ("NVML_FUNCTIONS", "nvml", CLASSES),
        ("NVML_REFUSED", "nvml", ("refused",)),
        ("NVML_DENIED", "nvml", ("denied",)),
    ):
        names = [function.name for function in functions if function.name.startswith(prefix) and function.kind in kinds]
        text += f"#define {macro}(OF)" + "".join(f" \\\n    OF({name})" for name in names) + "\n"
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
