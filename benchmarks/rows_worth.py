"""What a longer past is worth in zones: losses of order 1, 2 and 3 on vehicles held out, at equal ε for each report.

Run `python -m benchmarks.rows_worth` for Porto, the centre of Rome and San Francisco, from the files in ../shared/data,
with places 600 m apart and zones of at most 6, where every history gets a row. A step takes 30 s (San Francisco: 60 s).
`--spacing 250 --places 40` takes the zones and the row limit of a default build. `--zones N` takes the N zones with the
most steps; `--folder FOLDER` keeps the walks. Gains have 95 % intervals over vehicles, by the bootstrap. Loss is the
error of the travel distance to a task, km.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks._measure import show, took
from benchmarks.build import prepare_porto, prepare_rome, prepare_san_francisco
from geoblanket._arrays import Floats
from geoblanket.build.measures import VehicleLosses, vehicle_losses
from geoblanket.build.rows import MAX_ROWS
from geoblanket.lab.evaluate.city_data import CityData, CityFiles
from geoblanket.lab.evaluate.comparing import ZoneProblems
from geoblanket.lab.evaluate.experiment import Setting
from geoblanket.lab.evaluate.methods import RowsKind
from geoblanket.mechanism.solver.optimiser import optimise
from geoblanket.mobility.matching import match_traces

CITIES = {"Porto": prepare_porto, "Rome": prepare_rome, "San Francisco": prepare_san_francisco}
INTERVAL_S = {"San Francisco": 60.0}
"""Between steps, where it is not 30 s: cabs there report once a minute."""
WEIGHTS = ((1.0, 0.5, 0.25), (1.0, 1.0, 1.0))
DRAWS = 2000
ALL_STEPS = 10**9
"""Judge by all held-out steps."""
KINDS: tuple[RowsKind, ...] = ("none", "order:1", "order:2", "order:3")


@dataclass(frozen=True)
class Outcome:
    """What a context loses and needs, over all zones."""

    losses: VehicleLosses
    rows: int
    deeper_share: float

    @property
    def loss(self) -> float:
        """Mean over steps, km."""
        return float(self.losses.loss.sum() / self.losses.steps.sum())


def gain(ours: Floats, theirs: Floats) -> str:
    """Return by how much a loss is below another on the same vehicles, with its interval."""
    drawn = np.random.default_rng(0).integers(0, len(ours), (DRAWS, len(ours)))
    low, high = np.quantile(1 - ours[drawn].sum(axis=1) / theirs[drawn].sum(axis=1), [0.025, 0.975])
    return f"{1 - ours.sum() / theirs.sum():.1%} ({low:.1%} to {high:.1%})"


def walks_of(city: str, folder: Path, spacing_m: float) -> CityFiles:
    """Match the traces of a city, unless that was done before."""
    folder.mkdir(parents=True, exist_ok=True)
    walks = folder / f"walks{spacing_m:.0f}.parquet"
    if not walks.exists():
        CITIES[city](folder)
        interval_s = INTERVAL_S.get(city, 30.0)
        match_traces(folder / "traces.parquet", folder / "roads", walks, spacing_m=spacing_m, interval_s=interval_s)
    return CityFiles(name=city, roads=folder / "roads", walks=walks)


def compared(data: CityData, setting: Setting, kinds: tuple[RowsKind, ...], zones: int, gap: float) -> list[Outcome]:
    """Solve all zones, or those with the most steps, with rows of each kind."""
    cut = data.zones(setting.max_places)
    chosen = list(data.zone_data(cut, data.chosen_zones(cut, 0), "population", tracking=False))
    chosen = sorted(chosen, key=lambda zone: (-zone.share, zone.number))[: zones or None]
    problems = [ZoneProblems(zone) for zone in chosen]

    def solved(kind: RowsKind) -> Iterator[tuple[VehicleLosses, int, float]]:
        for one in problems:
            rows = one.rows(kind, setting)
            problem = one.problem(rows, epsilon=setting.epsilon, eta_km=setting.eta_km)
            mechanism = optimise(problem, gap=gap, time_limit_s=600.0).mechanism
            losses = vehicle_losses(mechanism, rows, one.data.steps, one.loss)
            yield losses, len(rows), rows.report.deeper_share * one.data.share

    total = sum(zone.share for zone in chosen)
    results = []
    for kind in kinds:
        losses, rows, deeper = zip(*solved(kind), strict=True)
        results.append(Outcome(VehicleLosses.joined(losses), sum(rows), sum(deeper) / total))
    return results


def main() -> None:
    """Compare the orders in each city."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--spacing", type=float, default=600.0)
    parser.add_argument("--places", type=int, default=6)
    parser.add_argument("--rows", type=int, default=MAX_ROWS)
    parser.add_argument("--zones", type=int, default=0)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 2.0, 4.0])
    parser.add_argument("--orders", type=int, default=2)
    parser.add_argument("--gap", type=float, default=0.005)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--city", choices=CITIES, nargs="+", default=list(CITIES))
    options = parser.parse_args()
    started, table = time.perf_counter(), []
    kinds = KINDS[: 1 + options.orders]
    with tempfile.TemporaryDirectory() as temporary:
        for city in options.city:
            files = walks_of(city, (options.folder or Path(temporary)) / city, options.spacing)
            data = CityData(files, max_steps=ALL_STEPS)
            for weights in WEIGHTS:
                for epsilon in options.epsilon:
                    setting = Setting(
                        methods=("lp",), epsilon=epsilon, history_weights=weights, max_places=options.places,
                        max_rows=options.rows,
                    )  # fmt: skip
                    found = compared(data, setting, kinds, options.zones, options.gap)
                    for kind, one, shorter in zip(kinds, found, [None, *found], strict=False):
                        what = "" if shorter is None else gain(one.losses.loss, shorter.losses.loss)
                        print(city, weights[:2], epsilon, kind, f"{one.loss:.4f}", what, flush=True)
                        table.append(
                            (city, f"{weights[0]:g}, {weights[1]:g}", f"{epsilon:g}", kind, f"{one.rows:,}",
                             f"{one.deeper_share:.0%}", f"{one.loss:.4f}", what)
                        )  # fmt: skip
    show(
        f"Places {options.spacing:g} m apart, zones of {options.places}, {options.rows:,} rows; {took(started)}",
        ("city", "w", "ε", "context", "rows", "deeper", "loss, km", "gain over one place less"),
        table,
    )


if __name__ == "__main__":
    main()
