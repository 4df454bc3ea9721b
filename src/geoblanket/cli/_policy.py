"""The option of commands that take a bundle: what is accepted of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from geoblanket.mechanism.bundle.policy import Policy

__all__ = ["PolicyOption", "read_policy"]

PolicyOption = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        help="The least that the bundle must promise (TOML): largest_epsilon = 20, largest_cost = 100, "
        "smallest_eta_km = 1, fewest_places = 4, smallest_extent_m = 400, largest_weight = 4, largest_rounding_m = 10 "
        "by default.",
    ),
]


def read_policy(path: Path | None) -> Policy:
    """Return the policy of a file, or the default one."""
    from geoblanket.mechanism.bundle.policy import DEFAULT_POLICY, Policy

    return DEFAULT_POLICY if path is None else Policy.read(path)
