"""The command tree, and the only place that turns errors into messages and exit codes."""

from __future__ import annotations

import signal
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from geoblanket import __version__
from geoblanket._extras import explain_missing
from geoblanket.cli import blanket, evaluate, ledger, roads, traces
from geoblanket.cli.build import ConfiguredCommand, build
from geoblanket.cli.bundle import show
from geoblanket.cli.city import city
from geoblanket.cli.demo import demo
from geoblanket.cli.gateway import gateway
from geoblanket.cli.lattice import lattice
from geoblanket.cli.learn import learn
from geoblanket.cli.match import match
from geoblanket.cli.model import model
from geoblanket.cli.perturb import perturb
from geoblanket.cli.plan import plan
from geoblanket.cli.report import report
from geoblanket.cli.sample import sample
from geoblanket.cli.serve import serve
from geoblanket.cli.track import track
from geoblanket.cli.verify import verify
from geoblanket.errors import GeoblanketError

__all__ = ["app", "main"]

_ORDER = (
    "demo", "city", "traces", "roads", "match", "blanket", "build", "plan", "lattice", "verify", "show", "report",
    "perturb", "ledger", "model", "learn", "sample", "track", "evaluate", "serve", "gateway",
)  # fmt: skip


_EXTRAS = {"serve": "service", "gateway": "gateway", "learn": "private"}
"""Commands with an extra of their own; others need what the missing module belongs to."""
_LIGHT = {"lattice", "verify", "show", "perturb", "ledger", "track"}
"""Commands that work without any extra, but for some of their options."""


class _InOrder(TyperGroup):
    """Lists the commands in the order of the work, groups among them, like a table of contents."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=_ORDER.index)

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
    cls=_InOrder,
    help="Context-aware metric differential privacy for vehicle locations.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a traceback with local variables would print coordinates
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(city)
app.add_typer(traces.app, name="traces")
app.add_typer(roads.app, name="roads")
app.command()(match)
app.add_typer(blanket.app, name="blanket")
app.command(cls=ConfiguredCommand)(build)
app.command()(plan)
app.command()(lattice)
app.command()(verify)
app.command()(show)
app.command()(report)
app.command()(perturb)
app.add_typer(ledger.app, name="ledger")
app.command()(model)
app.command()(learn)
app.command()(sample)
app.command()(track)
app.add_typer(evaluate.app, name="evaluate")
app.command()(serve)
app.command()(gateway)


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
            typer.echo("interrupted; nothing half-written was left behind", err=True)
        raise
