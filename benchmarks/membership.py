"""A membership attack on learning with and without privacy, and on faults that somebody could have made.

Run `python -m benchmarks.membership`; `--trainings N` sets how many models are learned with one vehicle, and as many
without it, for each line (a quarter of that without privacy). The city is small, its fleet was drawn from a model of
the roads, and the vehicle that is looked for drives where nobody else does. Of the models, half teach the attacker, and
half are guessed. OpenDP's noise cannot be seeded: figures differ a little from run to run.

Learning without privacy has no noise; there the trips that are driven over the roads are drawn anew for every model.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl

from benchmarks._measure import show
from benchmarks.membership_game import (
    AddNoise,
    Audit,
    MembershipAttack,
    MembershipGame,
    VehicleTrips,
    attack,
)
from geoblanket._arrays import Floats, Ints
from geoblanket._tables import write_table
from geoblanket._training import PrivatePart
from geoblanket.lab.city.model import make_city
from geoblanket.learning.chain_cells import ChainCells
from geoblanket.learning.estimating import NoisyCounts
from geoblanket.learning.noise import BOUND, TrainingBudget
from geoblanket.learning.private import with_noise
from geoblanket.learning.unit_counts import UnitCounts
from geoblanket.mobility.histories import count_histories
from geoblanket.mobility.walks import WALKS_SCHEMA, scan_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places, choose_places
from geoblanket.tracking.learning import learn_motion, model_of_counts
from geoblanket.tracking.motion_model import HOURS, LENGTH_BINS, MotionModel, length_bin, steps_of_bins
from geoblanket.tracking.synthetic_walks import count_steps, draw_walks, drive

DELTA = 1e-5
SPACING_M = 700.0
VEHICLES, TRIPS = 150, 1500
CANARY = "canary"
_SHORTEST, _LONGEST = 8, 64
"""Steps of its trips."""


@dataclass(frozen=True)
class Town:
    """A small city, walks of a fleet, and the same walks with one more vehicle."""

    graph: RoadGraph
    places: Places
    absent: Path
    present: Path

    @classmethod
    def made(cls, folder: Path, graph: RoadGraph, places: Places) -> Town:
        """Draw a fleet, and add the vehicle that is looked for."""
        road = learn_motion(graph, places, order=2)
        absent, present = folder / "absent.parquet", folder / "present.parquet"
        draw_walks(road, places, absent, trips=TRIPS, vehicles=VEHICLES)
        write_canary(absent, present, road)
        return cls(graph, places, absent, present)

    def game(self, epsilon: float, *, order: int) -> MembershipGame:
        """Return the game of learning privately, as it should be."""
        budget = TrainingBudget.of(epsilon, DELTA)
        return MembershipGame.of(self.graph, self.places, self.present, vehicle=CANARY, budget=budget, order=order)

    def without_clipping(self, game: MembershipGame, *, order: int) -> MembershipGame:
        """Return the game in which the vehicle, and no other, counts as often as it drove."""

        def as_driven(counts: UnitCounts, cells: int) -> Ints:
            sums = np.zeros(cells, np.int64)
            np.add.at(sums, counts.cell, counts.count * BOUND)
            return sums

        with patch.object(UnitCounts, "sums", as_driven):
            driven = self.game(game.budget.epsilon, order=order)
        return replace(
            game,
            present={name: sums + driven.present[name] - driven.absent[name] for name, sums in game.absent.items()},
        )

    def attack_without_privacy(self, trainings: int, *, order: int, confidence: float) -> MembershipAttack:
        """Attack `learn_motion` by the attack on models."""
        frame, about = scan_walks(self.present)
        trips = VehicleTrips.read(frame, CANARY, path=self.present)
        interval_s, past = float(about["interval_s"]), max(order - 1, 1)
        files = (self.present, self.absent)
        walked = [count_histories(walks, self.places, largest=past, part="all") for walks in files]
        shapes = [learn_motion(self.graph, self.places, walks=walks, order=order).trips for walks in files]
        seen: tuple[list[Floats], list[Floats]] = ([], [])
        for seed in range(trainings):
            driven = count_steps(drive(self.graph, self.places, interval_s=interval_s, seed=seed), largest=past)
            for found, counts, shape in zip(seen, walked, shapes, strict=True):
                model = model_of_counts(
                    self.places, driven, counts, order=order, interval_s=interval_s, learned={}, trips=shape
                )
                found.append(trips.seen_in(model))
        present, absent = (np.array(found) for found in seen)
        return attack(present, absent, delta=DELTA, confidence=confidence)


def write_canary(walks: Path, out: Path, road: MotionModel, *, trips: int = 20) -> None:
    """Write walks with one more vehicle, which drives where others hardly do: who is found most easily.

    It goes back and forth between the two neighbouring places between which others move least, in the hour in which
    fewest trips start, for as long as fewest trips take.

    """
    frame, about = scan_walks(walks)
    rows = frame.select("walk", "vehicle", "trip", "step", "time", "place").collect()
    starts = rows.filter(pl.col("step") == 0)["time"]
    hour = int(np.bincount(starts.dt.hour().to_numpy(), minlength=HOURS).argmin())
    first = pl.lit(starts.min(), pl.Datetime("us", "UTC")).dt.truncate("1d") + timedelta(hours=hour)
    steps = _rarest_length(rows)
    trip, step = (values.ravel() for values in np.indices((trips, steps)))
    canary = pl.DataFrame({"number": trip, "step": step, "place": np.array(_rarest_moves(rows, road))[step % 2]})
    drawn = canary.select(
        walk=pl.col("number") + rows["walk"].max() + 1,
        vehicle=pl.lit(CANARY),
        trip=pl.col("number") + pl.lit(rows["trip"].max()).fill_null(0) + 1,
        step=pl.col("step"),
        time=first + pl.duration(days="number") + pl.duration(seconds=pl.col("step") * about["interval_s"]),
        place=pl.col("place"),
        speed_m_s=pl.lit(None),
    ).cast(WALKS_SCHEMA)  # type: ignore[arg-type]
    write_table(pl.concat([frame, drawn.lazy()]), out, kind="walks", about=about)


def _rarest_length(rows: pl.DataFrame) -> int:
    """Return the length, in steps, of which there are fewest walks; neither short nor long."""
    least, _ = steps_of_bins(np.arange(LENGTH_BINS))
    walks = np.bincount(length_bin(rows.group_by("walk").len()["len"].to_numpy()), minlength=LENGTH_BINS)
    usable = np.flatnonzero((least >= _SHORTEST) & (least <= _LONGEST))
    return int(least[usable[walks[usable].argmin()]])


def _rarest_moves(rows: pl.DataFrame, road: MotionModel) -> tuple[int, int]:
    """Return two places between which the roads lead both ways and vehicles go least; of those, the least visited."""
    cells = ChainCells(road)
    place, step = (rows[name].to_numpy().astype(np.int64) for name in ("place", "step"))
    move = np.where(step[1:] > 0, cells.move(place[:-1], place[1:]), -1)
    often = np.bincount(move[move >= 0], minlength=cells.move_count)
    visits = np.bincount(place, minlength=cells.places)
    back = cells.move(cells.target, cells.source)
    usable = np.flatnonzero((back >= 0) & (cells.source != cells.target))
    source, target = cells.source[usable], cells.target[usable]
    best = np.lexsort((visits[source] + visits[target], often[usable] + often[back[usable]]))[0]
    return int(source[best]), int(target[best])


def too_little_noise(factor: float) -> AddNoise:
    """Return what adds noise of a fraction of the scale that it states."""

    def add_noise(
        sums: dict[str, Ints], shares: dict[str, float]
    ) -> tuple[dict[str, NoisyCounts], tuple[PrivatePart, ...]]:
        counts, parts = with_noise(sums, {name: rho / factor**2 for name, rho in shares.items()})
        stated = {name: NoisyCounts(drawn.counts, drawn.sigma / factor) for name, drawn in counts.items()}
        return stated, tuple(replace(part, scale=part.scale / factor) for part in parts)

    return add_noise


def main() -> None:
    """Attack all of them and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainings", type=int, default=2000)
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--order", type=int, default=2)
    parser.add_argument("--confidence", type=float, default=0.999)
    parser.add_argument("--full", action="store_true", help="a subtler fault, too: give 4,000 trainings or more")
    options = parser.parse_args()
    order, confidence = options.order, options.confidence
    graph = make_city("small").graph
    with tempfile.TemporaryDirectory() as folder:
        town = Town.made(Path(folder), graph, choose_places(graph, spacing_m=SPACING_M))
        game = town.game(options.epsilon, order=order)
        games: dict[str, MembershipGame] = {
            "as it should be": game,
            "fault: noise halved": replace(game, add_noise=too_little_noise(0.5)),
            "fault: not clipped": town.without_clipping(game, order=order),
        }
        if options.full:
            games["fault: ρ spent twice"] = replace(game, add_noise=too_little_noise(0.5**0.5))
        rows = []
        for name, played in games.items():
            start = time.perf_counter()
            # A fault is for the stronger attacker to find.
            audit = played.played(options.trainings, confidence=confidence, models=played is game)
            rows += _rows(name, audit, time.perf_counter() - start)
            print(*rows[-1], sep=" | ", flush=True)  # the table takes minutes
        fewer = max(options.trainings // 4, 4)
        start = time.perf_counter()
        found = town.attack_without_privacy(fewer, order=order, confidence=confidence)
        seconds = time.perf_counter() - start
        rows.append(_row("without privacy", "model", ("none", "none"), found, trainings=fewer, seconds=seconds))
    header = (
        "learning", "seen", "trainings", "found", "false alarms", "μ promised", "μ ≥", "ε promised", "ε ≥",
        "ε ≥ by μ", "s",
    )  # fmt: skip
    show(f"Membership attacks, {len(town.places)} places, order {order}, δ = {DELTA:g}", header, rows)


def _rows(name: str, audit: Audit, seconds: float) -> list[tuple[str, ...]]:
    promised = f"{audit.mu:.3f}", f"{audit.epsilon:g}"
    rows = [_row(name, "counts", promised, audit.on_counts, trainings=audit.trainings, seconds=seconds)]
    if audit.on_model is not None:
        rows.append(_row("", "model", promised, audit.on_model, trainings=audit.trainings, seconds=0.0))
    return rows


def _row(
    name: str, sees: str, promised: tuple[str, str], found: MembershipAttack, *, trainings: int, seconds: float
) -> tuple[str, ...]:
    rates = found.rates
    return (
        name,
        sees,
        f"2 × {trainings:,}",
        f"{np.mean(rates.found) / rates.present:.1%}",
        f"{np.mean(rates.false_alarms) / rates.absent:.1%}",
        promised[0],
        f"{found.mu:.3f}",
        promised[1],
        f"{found.epsilon:.2f}",
        f"{found.epsilon_by_mu:.2f}",
        f"{seconds:.0f}" if seconds else "",
    )


if __name__ == "__main__":
    main()
