"""`geoblanket roads`: road networks."""

from __future__ import annotations

import typer

__all__ = ["app"]

app = typer.Typer(help="Road networks: import and look.", no_args_is_help=True)
