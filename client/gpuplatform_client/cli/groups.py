"""Groups of commands."""

import inspect
from collections.abc import Callable
from typing import Any

import typer


def lists_by_default(group: typer.Typer, list_items: Callable[..., Any], help_text: str | None = None) -> None:
    """Have a group do what its command `ls` does where no other is named."""

    def without_command(context: typer.Context, **options: Any) -> None:
        if context.invoked_subcommand is None:
            list_items(**options)

    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    own = inspect.signature(list_items)
    without_command.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[context, *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own.parameters.values())]
    )
    group.info.no_args_is_help = False
    group.command("ls", help=help_text)(list_items)
    group.callback(invoke_without_command=True)(without_command)
