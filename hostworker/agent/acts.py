"""What other processes have a host's worker do by messages: a name and ids in, one call.

Messages are delivered at least once; whatever they call is safe to repeat.
"""

from collections.abc import Callable, Mapping
from typing import Final

from hostworker.agent import starts
from hostworker.app_processes import starter as app_starter
from hostworker.containers import resizer, runner
from hostworker.images import converter
from hostworker.terminals import message as terminal_message

ACTS: Final[Mapping[str, Callable[..., None]]] = {  # with the runtime first, then the arguments of the message
    "start_session": starts.begin,
    "stop_session": runner.stop,
    "resize_session": resizer.apply,
    "show_message": terminal_message.show,
    "open_app": app_starter.begin,
    "look_at_app": app_starter.look,
    "convert_session": converter.begin,
    "report_changes": converter.begin_report,
}
