"""A motion model that tells nothing of any single vehicle: few numbers, counted with noise, over a model of the roads.

From coarse to fine, each count shrunk to what roads and coarser counts let one expect (`shrinking`):

    where trips start, when, and how long they are          regions of the city, then places
    where vehicles are                                      regions, then places
    moves from place to place                               for fleets that can carry it
    turns: how far and how sharp, all over the city
    runs of three places (and of four at order 3)           for fleets that can carry it

How the budget is split depends on ε, δ and the number of units. The caller declares this number, or it is counted
first, with noise, from the same budget. Nothing of the walks reaches the model but through noise.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Ints
from geoblanket._display import Progress, silent
from geoblanket._frames import AnyFrame, is_path, takes_frames
from geoblanket._training import UNITS, PrivatePart, TrainingPromise, Unit
from geoblanket.errors import ParameterError
from geoblanket.learning.chain_cells import ChainCells
from geoblanket.learning.estimating import NoisyCounts, estimated
from geoblanket.learning.noise import BOUND, TrainingBudget, noisy
from geoblanket.learning.spending import TrainingLedger
from geoblanket.learning.unit_counts import UNITS_SHARE, UnitWalks, counted, kinds_of, split_budget
from geoblanket.mobility.histories import check_walks
from geoblanket.mobility.walks import scan_walks, write_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import LONGEST_MEMORY, MotionModel

__all__ = ["learn_privately", "with_noise"]

_RULES: Final = {
    1: "only the present place matters",
    2: "the last two places matter everywhere",
    3: "the last two places matter everywhere, and the last three where trips on the roads are frequent enough",
}
"""How many past places matter, by order: rules that do not look at walks."""
_FEWEST_UNITS: Final = 2
_MOST_UNITS: Final = 1 << 40


@checked
@takes_frames(walks=None)
def learn_privately(
    graph: RoadGraph,
    places: Places,
    walks: str | Path | AnyFrame,
    *,
    budget: TrainingBudget,
    unit: Unit = "vehicle",
    units: int | None = None,
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
        ε and δ of the promise to each unit.
    unit
        Whose presence is hidden: a vehicle with all its trips, or a trip. The walks have no part in this choice.
        Vehicles are told apart by their names.
    units
        How many units there are, if this is public anyway: it is written into the model as given. It decides how the
        budget is split and how small δ must be, and nothing else. None: they are counted with noise, for 2 % of the
        budget.
    order
        How many of the last places matter, 1 to 3, everywhere: a rule that does not look at walks.
    ledger
        Where the cost is written before anything is drawn; None: in the one beside the walks. A data frame has none
        beside it: name one.
    seed
        Of the trips driven over the roads. The noise has none.

    Raises
    ------
    InputError
        If a walk names no vehicle, and the unit is the vehicle.
    ParameterError
        If δ is not below one over the number of units. A number that is counted is checked after it was drawn: then the
        learning counts as spent.
    BudgetError
        If the ledger has not enough left.
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
    if unit not in get_args(Unit):
        raise ParameterError(f"The unit is 'vehicle' or 'trip'. Got {unit!r} instead.")
    if units is not None:
        if not _FEWEST_UNITS <= units <= _MOST_UNITS:
            raise ParameterError(f"The number of units must be {_FEWEST_UNITS} or more. Got {units} instead.")
        _check_delta(budget.delta, units, unit)
    if ledger is None:
        if not is_path(walks):
            raise ParameterError(
                "Walks in a data frame have no ledger beside them that counts what was learned from them before. Give "
                "ledger=TrainingLedger(path), the same one each time."
            )
        ledger = TrainingLedger.beside(walks)
    return _learned(
        graph, places, walks, budget=budget, unit=unit, units=units, order=order, ledger=ledger, seed=seed,
        progress=progress,
    )  # fmt: skip


@takes_frames(walks=write_walks)
def _learned(
    graph: RoadGraph,
    places: Places,
    walks: str | Path | AnyFrame,
    *,
    budget: TrainingBudget,
    unit: Unit,
    units: int | None,
    order: int,
    ledger: TrainingLedger,
    seed: int,
    progress: Progress,
) -> MotionModel:
    frame, about = scan_walks(walks)
    check_walks(walks, about, places)
    whose = UnitWalks.read(frame, path=walks, unit=unit)
    road = learn_motion(graph, places, order=order, interval_s=float(about["interval_s"]), seed=seed, progress=progress)
    cells = ChainCells(road)
    kinds = dict(kinds_of(cells))
    sums = counted(frame, whose, cells, kinds, path=walks, progress=progress)
    spent = ledger.spend(walks, budget, unit=unit, purpose=f"a motion model of order {order}")
    first: tuple[PrivatePart, ...] = ()
    number = units
    if number is None:
        noisy_counts, first = with_noise({UNITS: sums[UNITS]}, {UNITS: UNITS_SHARE * budget.rho})
        number = int(np.clip(np.rint(noisy_counts[UNITS].counts[0]), _FEWEST_UNITS, _MOST_UNITS))
        _check_delta(budget.delta, number, unit)
    # However the count of units came out, all parts together cost no more than ρ: plain adaptive composition.
    shares = split_budget(budget.rho - sum(part.rho for part in first), number, kinds)
    counts, parts = with_noise({name: sums[name] for name in shares}, shares, progress=progress)
    promise = TrainingPromise(
        unit=unit,
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


def _check_delta(delta: float, units: int, unit: Unit) -> None:
    """Raise ParameterError if δ is so weak that somebody's trips could be published whole."""
    if delta * units >= 1:
        raise ParameterError(
            f"δ = {delta:g} is too weak for {units:,} {unit}s: from 1/{units} on, it allows to publish all of one of "
            f"them. Give a much smaller one, such as {0.01 / units:.0e}."
        )


def with_noise(
    sums: dict[str, Ints], shares: dict[str, float], *, progress: Progress = silent
) -> tuple[dict[str, NoisyCounts], tuple[PrivatePart, ...]]:
    """Return sums over units with noise, and what is to be stated of them. From here on, nothing looks at walks.

    Parameters
    ----------
    sums
        By name; no unit changes any of them by more than `BOUND`, as a Euclidean length.
    shares
        What each may cost, by name.
    """
    counts: dict[str, NoisyCounts] = {}
    parts: list[PrivatePart] = []
    for name, total in sums.items():
        drawn, part = noisy(total, name=name, rho=shares[name], progress=progress)
        counts[name] = NoisyCounts(drawn / BOUND, part.scale / BOUND)
        parts.append(part)
    return counts, tuple(parts)
