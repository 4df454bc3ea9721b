"""The reference of the command line, from the command tree itself: what `geoblanket COMMAND --help` says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer
from typer.testing import CliRunner

from geoblanket.cli.main import app

__all__ = ["listing"]

_EXTRA = re.compile(r"^(?P<text>.*?)(?:(?:  |^)\[(?P<extra>.*)\])?$", re.DOTALL)
"""What Typer writes behind the text of an option: its default, its range, and whether it is required."""


def listing() -> str:
    """Return every command with its options and settings, as Markdown."""
    command: Any = typer.main.get_command(app)
    context = typer.Context(command, info_name=app.info.name)
    parts = [
        part
        for name in command.list_commands(context)
        for part in _section(command.get_command(context, name), context, 2)
    ]
    return "\n\n".join(parts) + "\n"


def _section(command: Any, parent: typer.Context, level: int) -> Iterator[str]:
    context = typer.Context(command, info_name=command.name, parent=parent)
    yield f"{'#' * level} {context.command_path}"
    yield _marked(command.help or "")
    below = command.list_commands(context) if hasattr(command, "list_commands") else []
    parameters = [parameter for parameter in command.get_params(context) if parameter.name != "help"]
    if parameters:
        yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```"
        rows = [_row(parameter.get_help_record(context)) for parameter in parameters if not parameter.hidden]
        yield "\n".join(["| option | meaning | default |", "|---|---|---|", *rows])
    if any(parameter.name == "set_" for parameter in parameters):
        words = context.command_path.split()[1:]
        yield f"Settings, with `--set`:\n\n```toml\n{CliRunner().invoke(app, [*words, '--set', 'help']).stdout}```"
    for name in below:
        yield from _section(command.get_command(context, name), context, level + 1)


def _row(record: tuple[str, str]) -> str:
    names, help_text = record
    found = _EXTRA.match(help_text)
    text, extra = (found["text"], found["extra"] or "") if found else (help_text, "")
    default = "required" if extra.endswith("required") else ""
    for part in extra.removesuffix("required").strip("; ").split("; "):
        if part.startswith("default: "):
            default = f"`{part.removeprefix('default: ').strip('()')}`"
        elif part:
            text += f" Range: {part.replace('<=', ' ≤ ').replace('>=', ' ≥ ').replace('<', ' < ').replace('>', ' > ')}."
    cells = [f"`{names.replace(' range>', '>')}`", _marked(text), default]
    return f"| {' | '.join(' '.join(cell.replace('|', chr(92) + '|').split()) for cell in cells)} |"


def _marked(text: str) -> str:
    """Return a text of help as Markdown: options in it are code, unless they already are in some."""
    parts = text.split("`")
    parts[::2] = [
        re.sub(r"(?<!\w)--[a-z][a-z-]*", r"`\g<0>`", re.sub(r"[*<]", r"\\\g<0>", part)) for part in parts[::2]
    ]
    return "`".join(parts)
