"""Options of `#SBATCH` lines, as the manual page of sbatch describes them."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Final

from django.utils.translation import gettext as _

from resources import clock
from resources.amounts.units import GIB, MIB
from sessions.errors import RejectedError
from sessions.launching import dependencies
from specs.formats.options import ScriptOption, options_of
from specs.formats.translation import Translation, home_path

SHORT: Final = {
    **{"J": "job-name", "t": "time", "c": "cpus-per-task", "n": "ntasks", "N": "nodes", "p": "partition"},
    **{"A": "account", "o": "output", "e": "error", "a": "array", "d": "dependency", "b": "begin", "D": "chdir"},
    **{"G": "gpus", "C": "constraint", "w": "nodelist", "x": "exclude", "q": "qos", "L": "licenses", "M": "clusters"},
}
FLAGS: Final = frozenset(
    {
        "exclusive",
        "requeue",
        "no-requeue",
        "overcommit",
        "oversubscribe",
        "spread-job",
        "contiguous",
        "hold",
        "parsable",
    }
)
GPUS: Final = re.compile(r"(gpu[:=])?((?P<model>[A-Za-z][^:()=]*)[:=]?)?(?P<count>[0-9]{1,4})?(\(.*\))?")
MEMORY: Final = re.compile(r"(?P<number>[0-9]{1,12})(?P<unit>[KMGT]?)B?", re.IGNORECASE)
UNITS: Final = {"K": 2**10, "": MIB, "M": MIB, "G": GIB, "T": 2**40}
TIME: Final = re.compile(r"((?P<days>[0-9]{1,4})-)?(?P<a>[0-9]{1,6})(:(?P<b>[0-9]{1,6}))?(:(?P<c>[0-9]{1,6}))?")
LATER: Final = re.compile(r"now(\+(?P<number>[0-9]{1,8})(?P<unit>[a-z]*))?")
DELAYS: Final = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
MINUTE: Final = 60
OF_SLURM: Final = re.compile(r"\s*(?P<name>srun|module|ml|sbatch|scontrol|squeue|sacct)\s")
NODES: Final = re.compile(r"[0-9]{1,4}")
UNLIMITED: Final = frozenset({"0", "UNLIMITED", "INFINITE", "-1"})


def translate(text: str, made: Translation) -> None:
    """Put what the `#SBATCH` lines say; of an option that is there twice, the last. Raises SpecError."""
    options = {option.name: option for option in options_of(text, "SBATCH", SHORT, FLAGS)}
    for name, handler in HANDLERS.items():  # in this order: some need what others have put
        if option := options.pop(name, None):
            handler(made, option)
    _size(made, {name: options.pop(name) for name in (*SIZES, *PER) if name in options})
    for option in options.values():
        made.leave(option.line, option.text, _notes().get(option.name, ""))
    for line, command in enumerate(text.splitlines(), 1) if made.options else ():
        if found := OF_SLURM.match(command):
            made.leave(line, found["name"], _("This command is not there: change the line, or add it to the image."))


def _notes() -> Mapping[str, str]:
    log = _("The output is kept with the session: “gpuplatform logs” shows it.")
    return {
        **{"output": log, "error": log},
        **dict.fromkeys(("mail-type", "mail-user"), _("You choose under Notifications what you are told.")),
        "requeue": _("What its host fails is queued again anyway."),
    }


def _array(made: Translation, option: ScriptOption) -> None:
    made.kind = "array"
    made.put(option.line, option.text, "tasks", option.value)


def _job_name(made: Translation, option: ScriptOption) -> None:
    made.put_name(option.line, option.text, option.value)


def _partition(made: Translation, option: ScriptOption) -> None:
    first, *others = option.value.split(",")
    made.put(option.line, option.text, "resource_group", first)
    if others:
        made.put(option.line, option.text, "resource_groups", others)


def _account(made: Translation, option: ScriptOption) -> None:
    made.put(option.line, option.text, "project", option.value)


def _time(made: Translation, option: ScriptOption) -> None:
    if option.value in UNLIMITED:
        return made.leave(option.line, option.text, _("Your policy has the limits then."))
    found = TIME.fullmatch(option.value)
    if found is None:
        made.refuse(option.line, f"#SBATCH {option.text}", _("Write a time such as 90, 1:30:00 or 2-12."))
    a, b, c = (int(found[name] or 0) for name in "abc")
    if found["days"]:
        seconds = ((int(found["days"]) * 24 + a) * 60 + b) * 60 + c
    elif found["c"]:
        seconds = (a * 60 + b) * 60 + c
    else:
        seconds = a * 60 + b
    if seconds < MINUTE:
        return made.put(option.line, option.text, "time_limit", "1m", _("A minute is the least."))
    return made.put(option.line, option.text, "time_limit", seconds if seconds % MINUTE else f"{seconds // MINUTE}m")


def _begin(made: Translation, option: ScriptOption) -> None:
    later = LATER.fullmatch(option.value)
    unit = (later["unit"] or "").removesuffix("s") if later else ""
    if later and unit in DELAYS:
        if later["number"]:
            try:
                start = clock.now() + timedelta(seconds=int(later["number"]) * DELAYS[unit])
            except OverflowError:
                made.refuse(option.line, f"#SBATCH {option.text}", _("There is no such moment."))
            made.put(option.line, option.text, "not_before", f"{start:%Y-%m-%dT%H:%M:%SZ}")
        else:
            made.leave(option.line, option.text, _("It starts as soon as it can anyway."))
        return
    try:
        moment = datetime.fromisoformat(option.value)
    except ValueError:
        made.refuse(option.line, f"#SBATCH {option.text}", _("Write now+1hour, or a moment such as 2030-01-31T16:00."))
    note = "" if moment.tzinfo else _("In UTC.")
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    made.put(option.line, option.text, "not_before", moment.isoformat(), note)


def _dependency(made: Translation, option: ScriptOption) -> None:
    parts = [part for part in option.value.split(",") if part != "singleton"]
    try:
        found = dependencies.parse(part if ":" in part else "" for part in parts)
    except RejectedError:
        names = "after, afterok, afternotok, afterany"
        message = _("Write these with ids of sessions, parted by commas: %(names)s.") % {"names": names}
        made.refuse(option.line, f"#SBATCH {option.text}", message)
    if found:
        made.put(option.line, option.text, "depends_on", [f"{kind}:{each}" for each, kind in found.items()])
    if "singleton" in option.value.split(","):
        made.leave(option.line, option.text, _("Two sessions of yours never have the same name at once."))


def _export(made: Translation, option: ScriptOption) -> None:
    names = []
    for part in option.value.split(","):
        name, equals, value = part.partition("=")
        if equals:
            made.put(option.line, option.text, ("env", name), value)
        elif name not in ("ALL", "NONE", "NIL"):
            names.append(name)
    if names or "env" not in made.fields:
        made.leave(option.line, option.text, _("No variables are taken from where the file was sent from."))


def _chdir(made: Translation, option: ScriptOption) -> None:
    made.put_directory(option.line, option.text, home_path(option.value))


HANDLERS: Final[Mapping[str, Callable[[Translation, ScriptOption], None]]] = {
    **{"job-name": _job_name, "partition": _partition, "account": _account, "time": _time, "begin": _begin},
    **{"array": _array, "dependency": _dependency, "export": _export, "chdir": _chdir},
}
SIZES: Final = ("nodes", "ntasks", "ntasks-per-node", "cpus-per-task")
PER: Final = ("gres", "gpus", "gpus-per-node", "gpus-per-task", "mem", "mem-per-cpu", "mem-per-gpu")


def _size(made: Translation, options: Mapping[str, ScriptOption]) -> None:
    """Put nodes as members of a cluster, and of each what its tasks have together."""
    numbers = {name: _number(made, option) for name, option in options.items() if name in SIZES and name != "nodes"}
    nodes, most = _nodes(made, options)
    tasks = numbers.get("ntasks-per-node") or -(-numbers.get("ntasks", nodes) // nodes)
    cpu = tasks * numbers.get("cpus-per-task", 1)
    if numbers:
        option = options[next(iter(numbers))]
        texts = " ".join(options[name].text for name in numbers)
        note = _("Of each of %(count)d members.") % {"count": nodes} if nodes > 1 else ""
        made.put(option.line, texts, "cpu", cpu, note)
    if nodes > 1 or most:
        option, note = options["nodes"], _("The script runs on the first member, and there is no srun.")
        made.put(option.line, option.text, ("cluster", "size"), nodes, note)
        made.fields["cluster"]["runs_on_all"] = False
        if most:
            made.put(option.line, option.text, ("cluster", "max_size"), most)
    gpus = _gpus(made, options, nodes, tasks)
    _memory(made, options, cpu, gpus)


def _nodes(made: Translation, options: Mapping[str, ScriptOption]) -> tuple[int, int | None]:
    """Return how many members there are at least, and to how many it grows."""
    option = options.get("nodes")
    if option is None:
        return 1, None
    least, dash, most = option.value.partition("-")
    if not (NODES.fullmatch(least) and int(least)) or (dash and not NODES.fullmatch(most)):
        made.refuse(option.line, f"#SBATCH {option.text}", _("Write a number of nodes such as 4, or 2-4."))
    if option.value in ("1", "1-1"):
        made.leave(option.line, option.text, _("A session is on one host anyway."))
    return int(least), int(most) if dash and most != least else None


def _gpus(made: Translation, options: Mapping[str, ScriptOption], nodes: int, tasks: int) -> int:
    """Put the GPUs of each member; return how many these are."""
    shares: dict[str, Fraction | int] = {
        "gres": 1,
        "gpus-per-node": 1,
        "gpus-per-task": tasks,
        "gpus": Fraction(1, nodes),
    }
    given = [options[name] for name in shares if name in options]
    for other in given[1:]:
        made.leave(other.line, other.text, _("The GPUs were named already."))
    for option in given[:1]:
        found = GPUS.fullmatch(option.value)
        is_gpu = found is not None and (option.name != "gres" or option.value.startswith("gpu"))
        if found is None or not is_gpu:
            made.refuse(option.line, f"#SBATCH {option.text}", _("Write GPUs such as gpu:2 or gpu:a100:1."))
        model = found["model"] or ""
        count = ceil(int(found["count"] or 1) * shares[option.name])
        made.put_gpus(option.line, option.text, Decimal(count), "" if model == "gpu" else model)
        return count
    return 0


def _memory(made: Translation, options: Mapping[str, ScriptOption], cpu: int, gpus: int) -> None:
    for name, times in (("mem", 1), ("mem-per-cpu", cpu), ("mem-per-gpu", gpus)):
        option = options.get(name)
        if option is None:
            continue
        found = MEMORY.fullmatch(option.value)
        if found is None:
            made.refuse(option.line, f"#SBATCH {option.text}", _("Write memory such as 16G or 512M."))
        elif not int(found["number"]):
            made.leave(option.line, option.text, _("All memory of a host cannot be asked for; write how much."))
        else:
            made.put_memory(option.line, option.text, int(found["number"]) * UNITS[found["unit"].upper()] * times)


def _number(made: Translation, option: ScriptOption) -> int:
    if not option.value.isdecimal() or int(option.value[:6]) < 1 or len(option.value) > 5:
        made.refuse(option.line, f"#SBATCH {option.text}", _("Write a whole number."))
    return int(option.value)
