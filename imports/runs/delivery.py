"""How the program and its job get into a container: by the input of an exec, never by its variables or command line.

Both lie in a file system in memory until the program has read them.
"""

import io
import json
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from engine.command import Command
from engine.engine import Engine, ExecError
from engine.run import run

PLACE: Final = "/dev/shm/gpuplatform-import-"  # noqa: S108  # in the container's memory
SOURCE: Final = Path(__file__).parent.parent
START_SECONDS: Final = 20.0
OUTPUT_BYTES: Final = 60_000
# A batch session's command: it waits for the program, and becomes it.
COMMAND: Final = "until [ -d {place} ]; do sleep 0.1 || sleep 1; done; exec python3 {place}/program {place}/job"
# Takes the program ($2 bytes) and its job ($3 bytes) from its input; both appear at once, and only once. Where
# the session has another command ($4), it starts the program.
RECEIVE: Final = f"""
echo $$
umask 077
place={PLACE}$1
[ -d "$place" ] && exit 0
both="$place.$$/both"  # of a pipe, the head of busybox takes more than it gives
mkdir "$place.$$" || exit 1
trap 'rm -rf "$place.$$"' EXIT
trap 'exit 1' HUP INT TERM
cat >"$both" || exit 1
[ "$(wc -c <"$both")" -eq "$(($2 + $3))" ] || exit 1
head -c "$2" "$both" >"$place.$$/program" && tail -c "$3" "$both" >"$place.$$/job" && rm "$both" || exit 1
mv -T "$place.$$" "$place" || exit 0
[ -n "$4" ] || exit 0
for needed in git python3; do
    command -v "$needed" >/dev/null 2>&1 && continue
    printf '{{"problem": "The image of this session has no %s."}}\\n' "$needed" >"$place/output"
    rm -f "$place/job"
    exit 0
done
nohup python3 "$place/program" "$place/job" >"$place/output" 2>&1 </dev/null &
echo $! >"$place/pid"
"""
READ: Final = f"""
place={PLACE}$1
kill -0 "$(cat "$place/pid")" 2>/dev/null || gone=gone
tail -c 40000 "$place/output"
echo "$gone"
"""
STOP: Final = f'kill -TERM "$(cat {PLACE}$1/pid)"; rm -f {PLACE}$1/job'


def command_of(import_id: str) -> str:
    """Return the command of the session that fetches."""
    return COMMAND.format(place=f"{PLACE}{import_id}")


@lru_cache(maxsize=1)
def program() -> bytes:
    """Return the program as a file that Python runs: a ZIP archive of `imports.fetcher`."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in (SOURCE / "__init__.py", *sorted((SOURCE / "fetcher").glob("*.py"))):
            archive.writestr(str(path.relative_to(SOURCE.parent)), path.read_bytes())
        archive.writestr("__main__.py", "from imports.fetcher.program import main\n\nmain()\n")
    return content.getvalue()


async def deliver(engine: Engine, container: str, import_id: str, job: dict[str, Any], *, starts: bool) -> None:
    """Send program and job into the container; a second time without effect. Raises ExecError."""
    code, text = program(), json.dumps(job).encode()
    sizes = str(len(code)), str(len(text))
    arguments = ["/bin/sh", "-c", RECEIVE, "sh", import_id, *sizes, "start" if starts else ""]
    process = await Command.start(engine, container, arguments, {}, "import")
    try:
        await process.write(code + text)
        await process.end_input()
        while (await process.read())[0]:
            pass
        if await process.ended():
            raise ExecError("The program could not be written to the memory of the container.")
    finally:
        process.close()


async def output(engine: Engine, container: str, import_id: str) -> str:
    """Return the end of what a program in a session with a command of its own has printed. Raises ExecError."""
    _, content = await run(engine, container, ["/bin/sh", "-c", READ, "sh", import_id], {}, limit=OUTPUT_BYTES)
    return content.decode(errors="replace")


async def stop(engine: Engine, container: str, import_id: str) -> None:
    """Have such a program remove what it fetched and end. Raises ExecError."""
    await run(engine, container, ["/bin/sh", "-c", STOP, "sh", import_id], {}, limit=OUTPUT_BYTES)
