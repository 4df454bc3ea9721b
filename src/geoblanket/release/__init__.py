"""Releasing locations by a bundle: the public rule from histories to rows, and traces perturbed in bulk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import on_first_use

if TYPE_CHECKING:
    from geoblanket.release.bulk import PerturbSummary, perturb_traces, perturb_walks
    from geoblanket.release.rule import ReleaseRule

__all__ = [
    "PerturbSummary",
    "ReleaseRule",
    "perturb_traces",
    "perturb_walks",
]

_HOME = {
    "PerturbSummary": "geoblanket.release.bulk",
    "ReleaseRule": "geoblanket.release.rule",
    "perturb_traces": "geoblanket.release.bulk",
    "perturb_walks": "geoblanket.release.bulk",
}

__getattr__, __dir__ = on_first_use(__name__, _HOME)
