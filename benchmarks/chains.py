"""Chains that are simpler than a motion model, to compare it with."""

from __future__ import annotations

import numpy as np

from geoblanket.tracking.motion_model import LENGTH_BINS, MotionModel, TripShape, steps_of_bins

__all__ = ["mean_steps", "of_order_1"]


def of_order_1(model: MotionModel) -> MotionModel:
    """Return the chain without memory, with a state for each place, that moves as a model does on average."""
    count, left = model.place_count, model.moves.row_numbers
    # Moves between the same two places are averaged over their states, weighted by how usual each state is.
    weight = (model.usual.astype(np.float64) + 1e-12)[left] * model.chances
    pairs, pair_of = np.unique(model.present[left] * count + model.present[model.targets], return_inverse=True)
    flow = np.bincount(pair_of, weight)
    source, target = np.divmod(pairs, count)
    return MotionModel(
        places_e7=model.places_e7,
        places_identity=model.places_identity,
        interval_s=model.interval_s,
        spread_m=model.spread_m,
        states=np.arange(count, dtype=np.int32)[:, None],
        start=np.asarray(model.to_places @ model.start, np.float32),
        offsets=np.concatenate([[0], np.cumsum(np.bincount(source, minlength=count))]),
        targets=target.astype(np.int32),
        chances=(flow / np.bincount(source, flow)[source]).astype(np.float32),
        learned={**model.learned, "order": f"1, {model.learned.get('order')} before"},
        hours=model.hours,
        lengths=model.lengths,
    )


def mean_steps(trips: TripShape) -> float:
    """Return the mean number of steps of a trip."""
    least, most = steps_of_bins(np.arange(LENGTH_BINS))
    return float(trips.lengths.astype(np.float64) @ (least + most) / 2)
