"""A small town with roads, walks and three bundles of the same places: what the web page is shown with in tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from geoblanket.build.building import build_bundle
from geoblanket.build.config import BuildConfig
from geoblanket.build.rows import Context
from tests.towns import Town, make_town

CHOICES = ((2.0, 1.0), (4.0, 1.0), (4.0, 0.0))
"""ε per km and history weight of each bundle."""


@dataclass(frozen=True)
class SmallTown(Town):
    """With bundles."""

    @property
    def bundles(self) -> list[Path]:
        return [self.folder / f"epsilon-{epsilon:g}-weight-{weight:g}.bundle" for epsilon, weight in CHOICES]


def build_town(folder: Path) -> SmallTown:
    """Make the town, in seconds."""
    town = SmallTown(make_town(folder).folder)
    for (epsilon, weight), path in zip(CHOICES, town.bundles, strict=True):
        config = BuildConfig(
            epsilon=epsilon,
            history_weights=(weight,),
            context=Context.of("order:1"),
            max_places=25,
            max_rows=50,
            gap=0.05,
            loss="straight",
        )
        build_bundle(town.roads, town.walks, path, config=config, workers=1)
    return town
