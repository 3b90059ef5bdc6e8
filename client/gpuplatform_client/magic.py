"""The magic `%%gpu` of IPython and Jupyter: a cell that runs in a session. Load it with `%load_ext`."""

import ast
import atexit
import linecache
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from gpuplatform_client import stored_login
from gpuplatform_client.client import Client
from gpuplatform_client.remote.sessions import OWN, BlockingSession

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # sessions do not have it
STOP = "stop"


def execute(cell: str, given: Mapping[str, Any], wanted: Sequence[str]) -> list[Any]:
    """Run a cell with these variables, print the value of a last expression, and return the variables it has set."""
    name, namespace = "<cell>", {"__name__": "__main__", **given}
    linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)  # for its tracebacks
    *statements, last = ast.parse(cell).body or [ast.Pass(lineno=1, col_offset=0)]
    exec(compile(ast.Module(statements, []), name, "exec"), namespace)  # noqa: S102
    exec(compile(ast.Interactive([last]), name, "single"), namespace)  # noqa: S102  # as a prompt does
    return [namespace[each] for each in wanted]


@magics_class
class GpuMagics(Magics):
    """Cells in the notebook's session, which the first of them launches."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._shell = shell
        self._session: BlockingSession | None = None
        self._launched_with = ("", "")  # share and image
        self._is_kept = False
        atexit.register(self._end_at_exit)

    @magic_arguments()
    @argument("share", nargs="?", default="", help="Fractions of a GPU, such as 0.5; or stop")
    @argument("--image", default="", help="Such as pytorch; else Python of this version")
    @argument("--session", default="", help="Id of a session that runs, in place of the notebook's own")
    @argument("--keep", action="store_true", help="Leave the session when the notebook ends")
    @argument("--in", dest="given", nargs="+", default=(), help="Variables that the cell gets, as x,y")
    @argument("--out", dest="wanted", nargs="+", default=(), help="Variables that come back")
    @line_cell_magic
    def gpu(self, line: str, cell: str | None = None) -> None:
        """Run the cell in a session, which stays for the next one until it is idle, or `%gpu stop`."""
        options = parse_argstring(self.gpu, line)
        if options.share == STOP:
            return self._stop()
        if cell is None:
            raise UsageError("%%gpu runs a cell; %gpu stop ends the session.")
        given, wanted = _names(options.given), _names(options.wanted)
        if missing := [name for name in given if name not in self._shell.user_ns]:
            raise UsageError(f"There is no variable {missing[0]}.")
        if options.session:
            session = BlockingSession.attach(options.session)
        else:
            session, self._is_kept = self._own(options.share, options.image), options.keep
        values = session.run(execute, cell, {name: self._shell.user_ns[name] for name in given}, wanted)
        self._shell.push(dict(zip(wanted, values, strict=True)))

    def _own(self, share: str, image: str) -> BlockingSession:
        """Return the notebook's session; one that has ended meanwhile is replaced."""
        asked = (share or self._launched_with[0], image or self._launched_with[1])
        if self._session and self._session.is_running():
            if asked != self._launched_with:
                raise UsageError("The notebook's session has other amounts, or another image: %gpu stop ends it.")
            return self._session
        self._session = BlockingSession.launch(asked[1] or f"python:{OWN}", fgpu=asked[0] or None)
        self._launched_with = asked
        return self._session

    def _stop(self) -> None:
        session, self._session = self._session, None
        if session:
            session.end()

    def _end_at_exit(self) -> None:
        """End the session without a thread, which an interpreter that exits has no more."""
        session, self._session = self._session, None
        if session and not self._is_kept:
            login = stored_login.load()
            with Client(login.url, login.token, retry_seconds=0.0) as client:
                client.terminate(session.id)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Offer the magic; IPython calls this."""
    shell.register_magics(GpuMagics(shell))


def _names(words: Sequence[str]) -> list[str]:
    return " ".join(words).replace(",", " ").split()
