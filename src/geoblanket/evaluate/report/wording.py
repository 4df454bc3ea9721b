"""What results mean, in sentences that follow from the numbers by fixed rules.

Of two losses one is called lower only where the interval of their difference says so; else it cannot be decided.
"""

from __future__ import annotations

from collections.abc import Sequence

from geoblanket._numbers import number, percent
from geoblanket.evaluate.measures.catalogue import Measure, Value
from geoblanket.evaluate.methods import METHODS, is_own
from geoblanket.evaluate.report.panels import ALIKE_WITHIN, REFERENCE_EPSILON, Panel, Relation, decide, saved

__all__ = [
    "against",
    "best_plain",
    "epsilons",
    "label_of",
    "least_loss_at",
    "more_or_less",
    "overall",
    "primary",
    "recommended",
    "reference_epsilon",
    "worth_left",
]

_CONTEXT = ("lp_cmdp", "lp_markov1", "lp_true_mb")
"""Methods that use the past, in the order in which a user would want to know about them."""


def label_of(method: str) -> str:
    """Return the name of a method."""
    return METHODS[method].label if method in METHODS or is_own(method) else method


def primary(panel: Panel) -> str | None:
    """Return the method with context that the report is about: with the predicted blanket, if it was compared."""
    return next((method for method in _CONTEXT if panel.series(method, Measure.HELD_OUT_LOSS)), None)


def best_plain(panel: Panel) -> str | None:
    """Return the best method without context: LP, unless others are surely lower; then the one with the most wins."""
    plain = [
        method
        for method in panel.methods
        if not (method in METHODS and METHODS[method].uses_past) and panel.series(method, Measure.HELD_OUT_LOSS)
    ]
    lower = [method for method in plain if method != "lp" and overall(panel, method, "lp") is Relation.LOWER]
    if "lp" in plain and not lower:
        return "lp"
    wins = least_loss_at(panel, lower or plain)
    return max(wins, key=lambda method: len(wins[method])) if wins else None


def overall(panel: Panel, method: str, other: str, measure: Measure = Measure.HELD_OUT_LOSS) -> Relation:
    """Say how losses compare over all points."""
    relations = {decide(saved(panel, method, other, point, measure)) for point in panel.points}
    if {Relation.LOWER, Relation.HIGHER} <= relations:
        return Relation.MIXED
    if decided := relations & {Relation.LOWER, Relation.HIGHER}:
        return decided.pop()
    return Relation.ALIKE if relations == {Relation.ALIKE} else Relation.UNDECIDED


def recommended(panel: Panel) -> str | None:
    """Return the method to speak of: the one with context where it is lower than the best without, else the latter."""
    context, plain = primary(panel), best_plain(panel)
    if context is None or plain is None:
        return context or plain
    return context if overall(panel, context, plain) is Relation.LOWER else plain


def against(panel: Panel, method: str, other: str, measure: Measure = Measure.HELD_OUT_LOSS) -> str:
    """Return, as the end of a sentence, where a method loses less than another, more, or that cannot be decided."""
    differences: dict[Relation, dict[float | str, Value]] = {}
    for point in panel.points:
        if (difference := saved(panel, method, other, point, measure)) is not None:
            differences.setdefault(decide(difference), {})[point] = difference
    parts = []
    for relation in (Relation.LOWER, Relation.HIGHER, Relation.ALIKE, Relation.UNDECIDED):
        if points := differences.get(relation):
            shares = more_or_less([value.value for value in points.values()])
            at = f"at {epsilons(panel, list(points))}"
            if relation is Relation.ALIKE:
                parts.append(f"the same within {percent(ALIKE_WITHIN)} {at}")
            elif relation is Relation.UNDECIDED:
                parts.append(f"it cannot be decided {at} (estimates: {shares})")
            else:
                parts.append(f"{shares} {at}")
    if not parts:
        return f"{label_of(method)} was not compared with {label_of(other)}."
    return f"loss of {label_of(method)} compared with {label_of(other)}: {'; '.join(parts)}."


def more_or_less(saved_shares: Sequence[float]) -> str:
    """Return shares saved in words: "10% to 20% less", or "2.0% more to 4.0% less"."""
    low, high = min(saved_shares), max(saved_shares)
    if low < 0 <= high:
        return f"{percent(-low)} more to {percent(high)} less"
    return f"{percent(abs(low), abs(high))} {'less' if low >= 0 else 'more'}"


def least_loss_at(panel: Panel, methods: Sequence[str]) -> dict[str, list[float | str]]:
    """Return at which points each method has the least loss, of those that have it anywhere."""
    wins: dict[str, list[float | str]] = {}
    for point in panel.points:
        losses = {key: loss for key in methods if (loss := panel.number(key, Measure.HELD_OUT_LOSS, point)) is not None}
        if losses:
            wins.setdefault(min(losses, key=lambda key: losses[key]), []).append(point)
    return wins


def reference_epsilon(panel: Panel) -> float | str:
    """Return the ε that single figures are told for: 2 per km, or else the one in the middle."""
    return REFERENCE_EPSILON if REFERENCE_EPSILON in panel.points else panel.points[len(panel.points) // 2]


def epsilons(panel: Panel, points: Sequence[float | str]) -> str:
    """Return values of ε as a list, or as all that were compared."""
    if len(points) == len(panel.points) > 2:
        return f"every ε ({number(panel.points[0])} to {number(panel.points[-1])} per km)"
    return f"ε = {', '.join(map(number, points))}"


def worth_left(panel: Panel, method: str, point: float | str) -> float | None:
    """Return which share of what exact reports are worth is left in design: 1 for exact ones, 0 for a constant."""
    loss, exact, nothing = (
        panel.number(method, name, point)
        for name in (Measure.DESIGN_LOSS, Measure.NO_PRIVACY_LOSS, Measure.CONSTANT_LOSS)
    )
    if loss is None or exact is None or nothing is None or nothing <= exact:
        return None
    return (nothing - loss) / (nothing - exact)
