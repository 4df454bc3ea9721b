"""The command tree, and the only place that turns errors into messages and exit codes."""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup, TyperOption
from typer.main import get_group

from geoblanket import __version__
from geoblanket._lazy import explain_missing
from geoblanket.errors import GeoblanketError

_CONTENTS = {
    "Start here": {
        "city": "Make a synthetic city: roads, traces and ground truth.",
        "doctor": "Check this machine: versions, extras, ledger, clock.",
    },
    "From traces to a mechanism": {
        "traces": "Import and inspect GPS traces.",
        "roads": "Import, inspect, cut into zones and export road networks.",
        "match": "Match traces to roads, as walks from place to place.",
        "blanket": "Find how much of the past the next place depends on.",
        "build": "Build the mechanisms of all zones, from roads and walks.",
        "lattice": "Make a mechanism for a whole city, from a map alone.",
        "plan": "Choose how to report: which ε, how often, which fence.",
    },
    "Check a mechanism": {
        "verify": "Verify a bundle or model in exact arithmetic: OK or NOT OK.",
        "show": "Show what is in a bundle or model.",
        "certainty": "Bound how often a guess from all reports can be right.",
        "report": "Write a page about a bundle: map, losses and promise.",
    },
    "On the device": {
        "perturb": "Perturb live locations, or walks and traces in bulk.",
        "fence": "Hide a home, or any other place, for good.",
        "ledger": "Make, show and verify the durable budget of a device.",
    },
    "The receiving side": {
        "model": "Learn how vehicles move, from a map and from walks.",
        "learn": "Learn the same with differential privacy for the drivers.",
        "sample": "Draw synthetic walks from a motion model.",
        "track": "Estimate where vehicles are from their reports.",
    },
    "Measure": {
        "evaluate": "Compare mechanisms: utility, leakage and attacks.",
        "reproduce": "Reproduce the paper's tables from raw public data.",
    },
    "Serve": {
        "serve": "Serve bundles over HTTP, with a page that explains them.",
        "gateway": "Perturb positions between trackers and their server.",
    },
}
"""The help's table of contents: all commands in the order of the work, each in one line."""
_MODULES = {
    "blanket": ("blanket",),
    "build": ("build", "lattice"),
    "bundle": ("verify", "show", "certainty", "report"),
    "data": ("city", "traces", "roads", "match"),
    "device": ("perturb", "fence", "ledger"),
    "doctor": ("doctor",),
    "evaluate": ("evaluate", "reproduce"),
    "motion": ("model", "learn", "sample", "track"),
    "plan": ("plan",),
    "serve": ("serve", "gateway"),
}
"""The modules of this folder, each with its commands. A module is imported when one of its commands is called."""
_MODULE_OF = {command: module for module, commands in _MODULES.items() for command in commands}
_COMPLETION = frozenset({"install_completion", "show_completion"})


_EXTRAS = {"serve": "service", "gateway": "gateway", "learn": "private"}
"""Commands with an extra of their own; others need what the missing module belongs to."""
_LIGHT = {"doctor", "lattice", "verify", "show", "certainty", "perturb", "fence", "ledger", "track"}
"""Commands that work without any extra, but for some of their options."""


class _OnDemand(TyperGroup):
    """Lists the commands in the order of the work, like a table of contents, and loads each when it is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # None until a command is called. The names alone serve for suggestions.
        self.commands: dict[str, Any] = {name: None for lines in _CONTENTS.values() for name in lines}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, from its module."""
        if cmd_name in self.commands and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _load(cmd_name)
        return super().get_command(ctx, cmd_name)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, those of shell completion out of sight: most people need them once, or never."""
        params = super().get_params(ctx)
        for param in params:
            if isinstance(param, TyperOption) and param.name in _COMPLETION:
                param.hidden = True
        return params

    def invoke(self, ctx: Any) -> Any:
        """Run a command; if it needs what is not installed, say which extra brings it."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            name = ctx.invoked_subcommand
            options = " with these options" if name in _LIGHT else ""
            explain_missing(error, f"`geoblanket {name}`{options}", _EXTRAS.get(name))
            raise


app = typer.Typer(
    name="geoblanket",
    cls=_OnDemand,
    help="Context-aware metric differential privacy for vehicle locations.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback with local variables would print coordinates
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _load(name: str) -> Any:
    """Return a command, or a group of them, as the help shows it."""
    module = import_module(f"geoblanket.cli.{_MODULE_OF[name]}")
    panel, line = next((panel, lines[name]) for panel, lines in _CONTENTS.items() if name in lines)
    holder = typer.Typer()
    if group := getattr(module, f"{name}_app", None):
        holder.add_typer(group, name=name, short_help=line, rich_help_panel=panel)
    else:
        holder.command(name, short_help=line, rich_help_panel=panel)(getattr(module, name))
    return get_group(holder).commands[name]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"geoblanket {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Context-aware metric differential privacy for vehicle locations."""


def main() -> None:
    """Run the command line; exit with 1 on an error of ours, 2 on wrong usage, 130 on Ctrl-C."""
    # A polite kill ends like Ctrl-C does: temporary files are removed on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except GeoblanketError as error:
        typer.secho(f"error: {error}", err=True, fg="red")
        sys.exit(1)
    except SystemExit as end:
        if end.code == 130:
            typer.echo("interrupted; no partial file was left behind", err=True)
        raise
