"""A small town with walks, roads and blankets that were found, for whole evaluations."""

from __future__ import annotations

from pathlib import Path

from geoblanket.blanket.discovery import DiscoveryOptions, discover
from geoblanket.lab.evaluate.city_data import CityFiles
from tests import towns

EXPERIMENT = """
title = "A small comparison"
zones = 2
destinations = 40
gap = 0.05
max_tasks = 200
reports = [4, 2]

[setting]
max_places = 12
max_rows = 40
methods = ["lp_true_mb", "lp_markov1", "lp", "constopt", "expmech", "expmech_published", "expmech_remap", "tight"]

[[vary]]
epsilon = [2, 6]

[quick]
zones = 1
epsilon = [6]
"""


class Town(towns.Town):
    @property
    def files(self) -> CityFiles:
        return CityFiles(name="town", roads=self.roads, walks=self.walks, findings=self.findings, traces=self.traces)

    @property
    def experiment(self) -> Path:
        return self.folder / "small.toml"


def make_town(folder: Path) -> Town:
    """From a map and GPS points to walks and blankets, in seconds."""
    town = Town(folder)
    towns.make_town(folder, trips=300)
    options = DiscoveryOptions(by=[("speed",)], largest=2)
    discover(town.walks, town.roads, options, workers=1, out=town.findings)
    town.experiment.write_text(EXPERIMENT, encoding="utf-8")
    return town
