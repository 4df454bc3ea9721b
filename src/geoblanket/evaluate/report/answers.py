"""The three questions that a comparison answers: which mechanism, what does privacy cost, would an attacker win."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from geoblanket.evaluate.report.figure_style import label_of
from geoblanket.evaluate.report.figures import pareto_front, trade_off
from geoblanket.evaluate.report.panels import Panel
from geoblanket.evaluate.report.wording import (
    Overall,
    against,
    best_plain,
    least_loss_at,
    lower_first,
    number,
    overall,
    percent,
    points_in_words,
    primary,
    recommended,
    reference_epsilon,
)

__all__ = ["attack_answers", "cost_answers", "which_answers", "worth_left"]

_LITTLE = 0.1
_HARDLY = 0.03
"""To lose less by a smaller share than this is no reason for a choice."""
_IN_USE = ("planar_laplace_remap", "planar_laplace", "expmech")
"""What users of today would pick, the best first."""


@dataclass(frozen=True)
class _Choice:
    context: str
    plain: str
    equal_epsilon: Overall
    equal_cost: Overall | None

    def sentence(self) -> str:
        context, plain = label_of(self.context), label_of(self.plain)
        if self.equal_epsilon is Overall.LOWER:
            return {
                Overall.LOWER: f"So use {context}: it costs less, whichever way the budget is counted.",
                Overall.HIGHER: f"So it depends on what the budget is for: {context} if ε is promised for each report "
                f"by itself, {plain} if all reports that depend on a location share its budget.",
                Overall.ALIKE: f"So use {context}: it costs less at equal ε for each report, and as much as {plain} at "
                "equal cost per location.",
                Overall.MIXED: f"So {context} for an ε for each report by itself; at equal cost per location it "
                "depends on ε.",
                Overall.UNDECIDED: f"So {context} for an ε for each report by itself; at equal cost per location which "
                "is better cannot be decided.",
                None: f"So {context} for an ε for each report by itself; equal costs per location were not compared.",
            }[self.equal_cost]
        if self.equal_epsilon is Overall.HIGHER:
            return f"So use {plain}: here the past does not make reports more useful."
        if self.equal_epsilon is Overall.ALIKE:
            return f"So use {plain}: looking at the past makes no difference that matters here."
        if self.equal_epsilon is Overall.MIXED:
            return f"So it depends on ε: {context} where it is below, {plain} where it is not."
        return f"So whether to look at the past cannot be decided by these walks; {plain} is the simpler choice."


def which_answers(panel: Panel, equal_cost: Panel | None) -> Iterator[str]:
    """Yield which mechanism to use in a city, and why."""
    yield _least(panel)
    context, plain = primary(panel), best_plain(panel)
    if context is not None and plain is not None:
        yield f"At equal ε for each report: {lower_first(against(panel, context, plain))}"
        at_cost = None
        if equal_cost is not None and {context, plain} <= set(equal_cost.methods):
            at_cost = overall(equal_cost, context, plain)
            yield (
                "At equal cost per location, where methods that use the past get a smaller ε because a location counts "
                f"in later reports too: {lower_first(against(equal_cost, context, plain))}"
            )
        yield _Choice(context, plain, overall(panel, context, plain), at_cost).sentence()
    yield from _at_equal_error(panel)
    chosen = recommended(panel)
    for rival in _IN_USE:
        if chosen is not None and rival not in (chosen, plain) and panel.series(rival, "held_out_loss"):
            yield f"What is in use today: {lower_first(against(panel, chosen, rival))}"
            break
    failed = [one for one in panel.methods if any(value.value == 0 for _, value in panel.series(one, "verified"))]
    if failed:
        yield f"Without a mechanism that passes verification somewhere: {', '.join(map(label_of, failed))}."


def cost_answers(panel: Panel) -> Iterator[str]:
    """Yield what privacy costs with the recommended mechanism."""
    method = recommended(panel)
    losses = [] if method is None else panel.series(method, "held_out_loss")
    if method is None or not losses:
        return
    unit = panel.unit("held_out_loss")
    yield (
        f"{label_of(method)} loses "
        + ", ".join(f"{value.value:.3g}" for _, value in losses)
        + f" {unit} on held-out walks at ε = {', '.join(number(point) for point, _ in losses)} per km."
    )
    kept = {point: share for point in panel.points if (share := worth_left(panel, method, point)) is not None}
    if not kept:
        return
    exact, nothing = (panel.number(method, name, next(iter(kept))) for name in ("no_privacy_loss", "constant_loss"))
    yield (
        f"An exact report would lose {exact:.3g} {unit}, since vehicles move on before it is used, and one that tells "
        f"nothing {nothing:.3g} {unit}. Of the difference, which is what reports are worth, "
        f"{', '.join(percent(share) for share in kept.values())} is left (in design)."
    )
    useless = [point for point, share in kept.items() if share < _LITTLE]
    if useless:
        yield (
            f"At {points_in_words(panel, useless)} less than a tenth is left: in zones as small as these, such reports "
            "tell the service little more than the zone."
        )


def worth_left(panel: Panel, method: str, point: float | str) -> float | None:
    """Return which share of what exact reports are worth is left in design: 1 for exact ones, 0 for a constant."""
    loss, exact, nothing = (
        panel.number(method, name, point) for name in ("design_loss", "no_privacy_loss", "constant_loss")
    )
    if loss is None or exact is None or nothing is None or nothing <= exact:
        return None
    return (nothing - loss) / (nothing - exact)


def attack_answers(panel: Panel, *, reports: int | None) -> Iterator[str]:
    """Yield whether attackers win against the recommended mechanism.

    Parameters
    ----------
    reports
        How many reports in a row the tracking attacker sees, if known.
    """
    method = recommended(panel)
    if method is None:
        return
    point = reference_epsilon(panel)
    row = "several" if reports is None else f"{reports}"
    parts = []
    for prefix, who in (
        ("inference", "sees a single report and knows how probable places are"),
        ("context_inference", "also knows the place before"),
        ("tracking", f"follows {row} reports in a row and knows how vehicles move"),
    ):
        success, error, guess = (
            panel.number(method, f"{prefix}_{what}", point) for what in ("success", "error", "success_prior")
        )
        if success is not None:
            blind = "" if guess is None else f" (without reports: {percent(guess)})"
            away = "" if error is None else f", and is {error:.2g} km off on average"
            parts.append(f"An attacker that {who} names the right place in {percent(success)} of cases{blind}{away}.")
    if parts:
        yield f"{label_of(method)} at ε = {number(point)} per km. {' '.join(parts)}"
    yield from _tracking_verdict(panel, method)
    yield from _who_is_tracked(panel)
    yield from _front(panel)


def _tracking_verdict(panel: Panel, method: str) -> Iterator[str]:
    series = panel.series(method, "tracking_success")
    if not series:
        return
    winning = [point for point, value in series if value.value > 0.5]
    learning = [
        point
        for point, value in series
        if (guess := panel.value(method, "tracking_success_prior", point)) is not None
        and (value.low if value.low is not None else value.value)
        > (guess.high if guess.high is not None else guess.value)
    ]
    if winning:
        yield f"So the tracking attacker wins (it is right more often than not) at {points_in_words(panel, winning)}."
    elif learning:
        yield (
            f"So the tracking attacker learns something from reports at {points_in_words(panel, learning)}, but is "
            "wrong more often than right at every ε."
        )
    else:
        yield "So the tracking attacker is not surely better than one that sees no reports, at any ε."


def _who_is_tracked(panel: Panel) -> Iterator[str]:
    """Say whether looking at the past tells a tracking attacker more, at equal ε."""
    context, plain = primary(panel), best_plain(panel)
    if context is None or plain is None:
        return
    more, less, unsure = [], [], []
    for point in panel.points:
        ours, theirs = (panel.value(one, "tracking_success", point) for one in (context, plain))
        if ours is None or theirs is None or None in (ours.low, ours.high, theirs.low, theirs.high):
            continue
        if (ours.low or 0) > (theirs.high or 0):
            more.append(point)
        elif (ours.high or 0) < (theirs.low or 0):
            less.append(point)
        else:
            unsure.append(point)
    for points, words in (
        (more, f"it is right more often with {label_of(context)} than with {label_of(plain)}"),
        (less, f"it is right less often with {label_of(context)} than with {label_of(plain)}"),
        (unsure, f"whether {label_of(context)} or {label_of(plain)} tells it more cannot be decided"),
    ):
        if points:
            yield f"At {points_in_words(panel, points)}, {words}."


def _at_equal_error(panel: Panel) -> Iterator[str]:
    """Say how losses compare where the tracking attacker errs by as much, whatever ε is then."""
    context, plain = primary(panel), best_plain(panel)
    if context is None or plain is None:
        return
    ours, theirs = (sorted(trade_off(panel, one, "tracking_error")) for one in (context, plain))
    if len(theirs) < 2:
        return
    errors, losses = np.array([(error, loss) for error, loss, _ in theirs]).T
    below = [1 - loss / float(np.interp(e, errors, losses)) for e, loss, _ in ours if errors[0] <= e <= errors[-1]]
    if below:
        yield (
            f"At equal error of an attacker that tracks vehicles, instead of equal ε, {label_of(context)} loses "
            f"{_more_or_less(below)} than {label_of(plain)} (interpolated between values of ε; no intervals)."
        )
        if max(below) < _HARDLY and overall(panel, context, plain) is Overall.LOWER:
            yield "So hardly anything of what looking at the past gains at equal ε is left."


def _more_or_less(below: Sequence[float]) -> str:
    """Return shares saved in words, as they are more or less."""
    low, high = min(below), max(below)
    if low < 0 <= high:
        return f"{percent(-low)} more to {percent(high)} less"
    shares = sorted((abs(low), abs(high)))
    return f"{' to '.join(dict.fromkeys(map(percent, shares)))} {'less' if low >= 0 else 'more'}"


def _front(panel: Panel) -> Iterator[str]:
    front = pareto_front(panel, "tracking_error", panel.methods)
    if len(front) > 1:
        counts: dict[str, int] = {}
        for _, _, method, _ in front:
            counts[method] = counts.get(method, 0) + 1
        whose = ", ".join(
            f"{label_of(method)} ({count})" for method, count in sorted(counts.items(), key=lambda one: -one[1])
        )
        total = sum(len(panel.series(method, "tracking_error")) for method in panel.methods)
        yield (
            f"Of {total} choices of method and ε, {len(front)} are beaten by none in both loss and the tracker's "
            f"error: {whose}."
        )


def _least(panel: Panel) -> str:
    wins = sorted(least_loss_at(panel, panel.methods).items(), key=lambda one: -len(one[1]))
    if not wins:
        return "No method was measured on held-out walks."
    return (
        "The least loss on held-out walks: "
        + "; ".join(f"{label_of(one)} at {points_in_words(panel, at)}" for one, at in wins)
        + "."
    )
