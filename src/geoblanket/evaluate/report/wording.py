"""What results mean, in sentences that follow from the numbers by fixed rules.

Of two losses one is called lower only where the interval of their difference says so; else it cannot be decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from geoblanket.evaluate.measures.values import Value
from geoblanket.evaluate.report.figure_style import label_of
from geoblanket.evaluate.report.panels import ALIKE_WITHIN, Panel, Verdict, decide, saved

__all__ = [
    "Overall",
    "against",
    "best_plain",
    "least_loss_at",
    "lower_first",
    "number",
    "overall",
    "percent",
    "points_in_words",
    "primary",
    "recommended",
    "reference_epsilon",
]

_CONTEXT = ("lp_cmdp", "lp_markov1", "lp_true_mb")
"""Methods that use the past, in the order in which a user would want to know about them."""
_REFERENCE = 2.0
"""ε per kilometre that single figures are told for, where it was compared."""


class Overall(Enum):
    """How one method's loss compares with another's over all ε."""

    LOWER = "lower"
    HIGHER = "higher"
    ALIKE = "alike"
    MIXED = "lower at some, higher at others"
    UNDECIDED = "cannot be decided"


def percent(share: float) -> str:
    """Return a share in per cent: two digits of it where it is small."""
    return (f"{share:.0%}" if abs(share) >= 0.0995 else f"{share:.1%}").replace("-", "−")


def primary(panel: Panel) -> str | None:
    """Return the method with context that the report is about: with the predicted blanket, if it was compared."""
    return next((method for method in _CONTEXT if panel.series(method, "held_out_loss")), None)


def best_plain(panel: Panel) -> str | None:
    """Return the best method without context: LP, unless others are surely lower; then the one with the most wins."""
    plain = [method for method in panel.methods if method not in _CONTEXT and panel.series(method, "held_out_loss")]
    lower = [method for method in plain if method != "lp" and overall(panel, method, "lp") is Overall.LOWER]
    if "lp" in plain and not lower:
        return "lp"
    wins = least_loss_at(panel, lower or plain)
    return max(wins, key=lambda method: len(wins[method])) if wins else None


def overall(panel: Panel, method: str, other: str) -> Overall:
    """Say how losses compare over all points."""
    verdicts = {decide(saved(panel, method, other, point)) for point in panel.points}
    if {Verdict.LOWER, Verdict.HIGHER} <= verdicts:
        return Overall.MIXED
    if Verdict.LOWER in verdicts:
        return Overall.LOWER
    if Verdict.HIGHER in verdicts:
        return Overall.HIGHER
    return Overall.ALIKE if verdicts == {Verdict.ALIKE} else Overall.UNDECIDED


def recommended(panel: Panel) -> str | None:
    """Return the method to speak of: the one with context where it is lower than the best without, else the latter."""
    context, plain = primary(panel), best_plain(panel)
    if context is None or plain is None:
        return context or plain
    return context if overall(panel, context, plain) is Overall.LOWER else plain


def against(panel: Panel, method: str, other: str) -> str:
    """Return in words where a method's loss is below another's, where above, and where that cannot be decided."""
    found: dict[Verdict, list[tuple[float | str, Value]]] = {verdict: [] for verdict in Verdict}
    for point in panel.points:
        if (difference := saved(panel, method, other, point)) is not None:
            found[decide(difference)].append((point, difference))
    parts = []
    for verdict, word in ((Verdict.LOWER, "below"), (Verdict.HIGHER, "above")):
        if some := found[verdict]:
            shares = _range([abs(value.value) for _, value in some])
            parts.append(f"{word} it by {shares} at {points_in_words(panel, [point for point, _ in some])}")
    if some := found[Verdict.ALIKE]:
        at = points_in_words(panel, [point for point, _ in some])
        parts.append(f"alike, within {percent(ALIKE_WITHIN)}, at {at}")
    if some := found[Verdict.UNDECIDED]:
        at = points_in_words(panel, [point for point, _ in some])
        parts.append(
            f"which is lower cannot be decided at {at} (estimates: {_range([v.value for _, v in some])} below)"
        )
    if not parts:
        return f"{label_of(method)} was not compared with {label_of(other)}."
    return f"Loss of {label_of(method)} against {label_of(other)}: {'; '.join(parts)}."


def least_loss_at(panel: Panel, methods: Sequence[str]) -> dict[str, list[float | str]]:
    """Return at which points each method has the least loss, of those that have it anywhere."""
    wins: dict[str, list[float | str]] = {}
    for point in panel.points:
        losses = {one: loss for one in methods if (loss := panel.number(one, "held_out_loss", point)) is not None}
        if losses:
            wins.setdefault(min(losses, key=lambda one: losses[one]), []).append(point)
    return wins


def reference_epsilon(panel: Panel) -> float | str:
    """Return the ε that single figures are told for: 2 per km, or else the one in the middle."""
    return _REFERENCE if _REFERENCE in panel.points else panel.points[len(panel.points) // 2]


def points_in_words(panel: Panel, points: Sequence[float | str]) -> str:
    """Return values of ε as a list, or as all that were compared."""
    if len(points) == len(panel.points) > 2:
        return f"every ε ({number(panel.points[0])} to {number(panel.points[-1])} per km)"
    return f"ε = {', '.join(map(number, points))}"


def number(value: float | str) -> str:
    """Return a number as people write it, or a word as it is."""
    return value if isinstance(value, str) else f"{value:g}".replace("inf", "∞")


def lower_first(text: str) -> str:
    """Return a sentence as a part of another."""
    return text[0].lower() + text[1:] if text[1:2].islower() else text


def _range(shares: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys((percent(min(shares)), percent(max(shares)))))
