"""`geoblanket blanket`: how much of a vehicle's past its next place depends on."""

from __future__ import annotations

import typer

from geoblanket.cli.blanket_discover import discover
from geoblanket.cli.blanket_study import study
from geoblanket.cli.blanket_train import predict, train

__all__ = ["app"]

app = typer.Typer(
    help="Find Markov blankets: how much of a vehicle's past its next place depends on.", no_args_is_help=True
)
app.command()(discover)
app.command()(train)
app.command()(predict)
app.command()(study)
