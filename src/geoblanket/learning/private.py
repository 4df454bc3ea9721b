"""Learn a motion model with differential privacy: few numbers, counted with noise, correct a model of the roads.

The counts go from coarse to fine; each is shrunk towards its expectation from roads and coarser counts (`estimating`):

    where trips start, when, and how long they are          regions of the city, then places
    where vehicles are                                      regions, then places
    moves from place to place                               only for large fleets
    turns: lengths and angles, over the whole city
    runs of three places (and of four at order 3)           only for large fleets

The split of the budget depends on ε, δ and the number of units. The caller declares this number, or it is counted
first, with noise, from the same budget. Walks affect the model only through noisy counts.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Ints
from geoblanket._display import Progress, silent
from geoblanket._frames import AnyFrame, is_path, takes_frames
from geoblanket._training import UNITS, PrivatePart, TrainingPromise
from geoblanket.errors import ParameterError
from geoblanket.learning.chain_cells import ChainCells
from geoblanket.learning.estimating import NoisyCounts, estimated
from geoblanket.learning.noise import BOUND, FEWEST_UNITS, MOST_UNITS, TrainingBudget, check_delta, noisy
from geoblanket.learning.spending import TrainingLedger
from geoblanket.learning.unit_counts import UNITS_SHARE, UnitWalks, counted, kinds_of, split_budget
from geoblanket.mobility.walks import scan_walks_between, write_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import LONGEST_MEMORY, MotionModel

_RULES: Final = {
    1: "only the present place matters",
    2: "the last two places matter everywhere",
    3: "the last two places matter everywhere, and the last three where trips on the roads are frequent enough",
}
"""How many past places matter, by order: rules that do not depend on walks."""


@checked
@takes_frames(walks=None)
def learn_privately(
    graph: RoadGraph,
    places: Places,
    walks: str | Path | AnyFrame,
    *,
    budget: TrainingBudget,
    order: int = 2,
    ledger: TrainingLedger | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> MotionModel:
    """Learn how vehicles move, with differential privacy for those who drove.

    Parameters
    ----------
    graph, places
        The roads, and the places between which vehicles move.
    walks
        A table written by `geoblanket match`, or `Walks` of a data frame.
    budget
        ε and δ of the promise to each unit, and what a unit is.
    order
        How many of the last places matter, 1 to 3, everywhere: a rule that does not depend on walks.
    ledger
        The ledger that records the cost before any noise is drawn; None: the one beside the walks. Walks in a data
        frame need a ledger.
    seed
        Seed of the trips simulated over the roads. The noise has no seed.

    Raises
    ------
    InputError
        If a walk names no vehicle, and the unit is the vehicle.
    ParameterError
        If δ is not below one over the number of units. A noisy number of units is checked after it was drawn: the
        learning then counts as spent.
    BudgetError
        If the ledger has not enough budget left.
    MismatchError
        If the walks were matched to other places.

    Examples
    --------
    >>> from geoblanket import RoadGraph, TrainingBudget, choose_places, learn_privately
    >>> graph = RoadGraph.load("city.roads")
    >>> places = choose_places(graph, spacing_m=500)
    >>> model = learn_privately(graph, places, "walks.parquet", budget=TrainingBudget.of(1, 1e-6))
    >>> model.training.in_words()
    'learned with ε = 1, δ = 1e-06 for each vehicle'
    """
    if not 1 <= order <= LONGEST_MEMORY:
        raise ParameterError(f"The order of a motion model is 1 to {LONGEST_MEMORY}. Got {order} instead.")
    if ledger is None:
        if not is_path(walks):
            raise ParameterError(
                "Walks in a data frame have no ledger beside them that records what was learned from them before. Give "
                "ledger=TrainingLedger(path), the same one each time."
            )
        ledger = TrainingLedger.beside(walks)
    return _learned(graph, places, walks, budget=budget, order=order, ledger=ledger, seed=seed, progress=progress)


@takes_frames(walks=write_walks)
def _learned(
    graph: RoadGraph,
    places: Places,
    walks: str | Path | AnyFrame,
    *,
    budget: TrainingBudget,
    order: int,
    ledger: TrainingLedger,
    seed: int,
    progress: Progress,
) -> MotionModel:
    # Exact sums over units, each unit bounded. They do not leave this function without noise.
    frame, about = scan_walks_between(walks, places)
    whose = UnitWalks.read(frame, path=walks, unit=budget.unit)
    road = learn_motion(graph, places, order=order, interval_s=float(about["interval_s"]), seed=seed, progress=progress)
    cells = ChainCells(road)
    kinds = dict(kinds_of(cells))
    sums = counted(frame, whose, cells, kinds, path=walks, progress=progress)
    # The cost is on the disk before any noise is drawn.
    spent = ledger.spend(walks, budget, purpose=f"a motion model of order {order}")
    first: tuple[PrivatePart, ...] = ()
    number = budget.units
    if number is None:
        noisy_counts, first = with_noise({UNITS: sums[UNITS]}, {UNITS: UNITS_SHARE * budget.rho})
        number = int(np.clip(np.rint(noisy_counts[UNITS].counts[0]), FEWEST_UNITS, MOST_UNITS))
        check_delta(budget.delta, number, budget.unit)
    # Whatever the noisy number of units is, all parts together cost at most ρ: plain adaptive composition.
    shares = split_budget(budget.rho - sum(part.rho for part in first), number, kinds)
    counts, parts = with_noise({name: sums[name] for name in shares}, shares, progress=progress)
    promise = TrainingPromise(
        unit=budget.unit,
        units=number,
        units_are="noisy" if first else "declared",
        epsilon=budget.epsilon,
        delta=budget.delta,
        parts=(*first, *parts),
        rule="; ".join(filter(None, (_RULES[order], spent.note))),
        rho_before=spent.rho_before,
        noise_id=secrets.token_hex(8),
    )
    learned: dict[str, Any] = {**road.learned, "from": "private", "promise": promise.as_json()}
    learned |= {name: about[name] for name in ("training",) if name in about}
    return replace(estimated(cells, counts), learned=learned)


def with_noise(
    sums: dict[str, Ints], shares: dict[str, float], *, progress: Progress = silent
) -> tuple[dict[str, NoisyCounts], tuple[PrivatePart, ...]]:
    """Return noisy sums over units, and the statements about them. After this, nothing reads the walks.

    Parameters
    ----------
    sums
        Sums by name; no unit changes any of them by more than `BOUND`, as a Euclidean length.
    shares
        The largest cost of each, by name.
    """
    counts: dict[str, NoisyCounts] = {}
    parts: list[PrivatePart] = []
    for name, total in sums.items():
        drawn, part = noisy(total, name=name, rho=shares[name], progress=progress)
        counts[name] = NoisyCounts(drawn / BOUND, part.scale / BOUND)
        parts.append(part)
    return counts, tuple(parts)
