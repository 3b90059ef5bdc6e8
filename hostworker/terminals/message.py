"""Shows a line of text in all terminals that are attached to a session's tmux, by the web and by SSH."""

import logging
import time
from typing import Final

from hostworker.runtime_protocol import EngineUnreachableError, ExecutionError, Runtime

logger = logging.getLogger(__name__)

# "-d" is of tmux 3.2: how long it stays, in milliseconds. "#" begins a format in tmux, so it is doubled.
SHOW: Final = """
command -v tmux >/dev/null 2>&1 || exit 0
tmux list-clients -F '#{client_name}' 2>/dev/null | while read -r client; do
    tmux display-message -c "$client" -d 15000 "$GP_TEXT" 2>/dev/null || tmux display-message -c "$client" "$GP_TEXT"
done
"""


def show(runtime: Runtime, session_id: str, attempt: int, text: str, until: float) -> None:
    """Show the text, unless the Unix time `until` has passed; a failure is logged: the page shows the text too."""
    if time.time() >= until:
        return
    try:
        runtime.execute(session_id, attempt, ["sh", "-c", SHOW], {"GP_TEXT": text.replace("#", "##")})
    except (ExecutionError, EngineUnreachableError) as error:
        logger.info("session %s: its terminals do not show %r: %s", session_id, text, error)
