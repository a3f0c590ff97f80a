"""Text arguments: not empty, and valid UTF-8.

An unset shell variable gives an empty text. As "no filter" it would widen a redrive to every letter; as a
name it would match nothing.
"""

from __future__ import annotations

from typing import Any

import click


class _Stated(click.types.StringParamType):
    """A text that is not empty and is valid UTF-8."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """``value``, if it is such a text."""
        text = super().convert(value, param, ctx)
        if not text.strip():
            optional = isinstance(param, click.Option) and not param.required
            leave = ", or leave it out" if optional else ""
            self.fail(f"it is empty; give it a value{leave}.", param, ctx)
        if not text.isprintable() and _holds_raw_bytes(text):
            self.fail(
                "it is not valid UTF-8; write it in the encoding of your terminal.", param, ctx
            )
        return text


STATED = _Stated()


def refuse_empty(command: click.Command) -> None:
    """Make ``command`` and its subcommands refuse texts that are empty or not UTF-8. Parameters with a
    type of their own stay as they are."""
    for param in command.params:
        if param.type is click.STRING:
            param.type = STATED
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            refuse_empty(subcommand)


def _holds_raw_bytes(text: str) -> bool:
    # Python decodes invalid bytes of the command line as surrogates.
    return any("\ud800" <= char <= "\udfff" for char in text)
