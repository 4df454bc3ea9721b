"""The error of a tracker on the road, and at rest after the drive."""

from __future__ import annotations

import numpy as np
import polars as pl

from benchmarks import tracking
from benchmarks._measure import mean_and_error, show
from geoblanket._arrays import Floats, Positions
from geoblanket._geodesy import haversine_m
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.making import Area, spec_over
from geoblanket.tracking.estimate import Estimator
from geoblanket.tracking.filtering import BeliefFilter, Sequences, follow
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import Singles
from geoblanket.tracking.observation import LatticeObservations


def road_and_rest(roads: str, walks: str, *, quick: bool) -> None:
    """Print the error of a tracker on the road, and at rest after the drive, with hold."""
    known = tracking.load(roads, walks, 200 if quick else None)
    places = known.places
    model = learn_motion(known.graph, places, walks=walks, split=tracking.SPLIT, order=2)
    last = np.append(known.starts[1:], len(known.place)) - 1
    visited = np.bincount(known.training["place"].to_numpy(), minlength=len(places))
    ended = known.training.group_by("walk").agg(pl.col("place").sort_by("step").last())["place"].to_numpy()
    ends_here = (np.bincount(ended, minlength=len(places)) + 0.5) / (visited + 5.0)
    area = Area(places.lat.min(), places.lon.min(), places.lat.max(), places.lon.max())
    rows = []
    for epsilon in (2.0, 4.0):
        lattice = Lattice.verified(spec_over(area, epsilon=epsilon))
        cells = lattice.draw_many(places.lat[known.place], places.lon[known.place])
        beliefs = BeliefFilter(model, LatticeObservations(lattice, model, interval_s=known.interval_s))
        estimator, errors = Estimator(model), np.empty((2, len(cells)))

        def seen(
            positions: Positions, belief: Singles, beliefs: BeliefFilter = beliefs, errors: Floats = errors,
            estimator: Estimator = estimator,
        ) -> None:  # fmt: skip
            truth = known.place[positions]
            by_place = beliefs.places(belief)
            for number, weighed in enumerate((by_place, by_place * ends_here[:, None].astype(np.float32))):
                guess = estimator.estimates(weighed / weighed.sum(axis=0))
                errors[number, positions] = haversine_m(guess.lat, guess.lon, model.lat[truth], model.lon[truth])

        follow(beliefs, Sequences(np.arange(len(cells)), cells, known.starts), seen)
        on_road, before, rest, knows_ends = errors[0], errors[0, last - 1], errors[0, last], errors[1, last]
        rows.append(
            (
                f"{epsilon:g}",
                f"{len(cells):,}",
                mean_and_error(on_road),
                mean_and_error(before),
                f"{len(last):,}",
                mean_and_error(rest),
                f"{rest.mean() / on_road.mean() - 1:+.1%}",
                mean_and_error(knows_ends),
            )
        )
    show(
        "Tracked with hold, m: on the road, and at rest after the drive",
        (
            "ε",
            "reports",
            "on the road",
            "30 s before the rest",
            "rests",
            "at rest",
            "against road",
            "knows trips' ends",
        ),
        rows,
    )
