"""The three questions that a comparison answers: which mechanism, what does privacy cost, would an attacker win."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from geoblanket._display import number, percent
from geoblanket.evaluate.measures.catalogue import CONTEXT_INFERENCE, INFERENCE, TRACKING, Measure
from geoblanket.evaluate.report.figures import pareto_front
from geoblanket.evaluate.report.panels import Panel, Relation
from geoblanket.evaluate.report.tracked import at_equal_error
from geoblanket.evaluate.report.wording import (
    against,
    best_plain,
    epsilons,
    label_of,
    least_loss_at,
    overall,
    primary,
    recommended,
    reference_epsilon,
    worth_left,
)

__all__ = ["attack_answers", "cost_answers", "which_answers"]

_LITTLE = 0.1
_IN_USE = ("planar_laplace_remap", "planar_laplace", "expmech")
"""What users of today would pick, the best first."""


def which_answers(panel: Panel, equal_cost: Panel | None) -> Iterator[str]:
    """Yield which mechanism to use in a city, and why."""
    yield _least(panel)
    context, plain = primary(panel), best_plain(panel)
    if context is not None and plain is not None:
        compared = equal_cost if equal_cost is not None and {context, plain} <= set(equal_cost.methods) else None
        yield f"At equal ε for each report, {against(panel, context, plain)}"
        if compared is not None:
            yield (
                f"At equal cost per location, {against(compared, context, plain)} There, methods that use the past "
                "get a smaller ε, because a location counts in later reports too."
            )
        measure = Measure.HELD_OUT_LOSS
        if panel.has(Measure.TRACKED_LOSS):
            # What counts in the end: nobody who receives reports forgets the earlier ones.
            measure = Measure.TRACKED_LOSS
            yield f"Tracked, at equal ε for each report, {against(panel, context, plain, measure)}"
            if compared is not None:
                yield f"Tracked, at equal cost per location, {against(compared, context, plain, measure)}"
        at_cost = None if compared is None else overall(compared, context, plain, measure)
        yield _choice(label_of(context), label_of(plain), overall(panel, context, plain, measure), at_cost)
        # Other experiments may look at other zones.
        same = compared if compared is not None and compared.experiment == panel.experiment else None
        if (told := at_equal_error((panel, same), context, plain)) is not None:
            yield told
    chosen = recommended(panel)
    for rival in _IN_USE:
        if chosen is not None and rival not in (chosen, plain) and panel.series(rival, Measure.HELD_OUT_LOSS):
            yield f"Against what is in use today, {against(panel, chosen, rival)}"
            break
    failed = [key for key in panel.methods if any(value.value == 0 for _, value in panel.series(key, Measure.VERIFIED))]
    if failed:
        yield f"These methods have no verified mechanism at some ε: {', '.join(map(label_of, failed))}."


def _choice(context: str, plain: str, equal_epsilon: Relation, equal_cost: Relation | None) -> str:
    """Return which of two methods to use, by how they compare for each report and per location."""
    if equal_epsilon is Relation.LOWER:
        for_each = f"So use {context} if ε is promised for each report by itself"
        return {
            Relation.LOWER: f"So use {context}: it costs less, whichever way the budget is counted.",
            Relation.HIGHER: f"So it depends on what the budget is for: {context} if ε is promised for each report by "
            f"itself, {plain} if all reports that depend on a location share its budget.",
            Relation.ALIKE: f"So use {context}: it costs less at equal ε for each report, and as much as {plain} at "
            "equal cost per location.",
            Relation.MIXED: f"{for_each}; at equal cost per location it depends on ε.",
            Relation.UNDECIDED: f"{for_each}; at equal cost per location it cannot be decided which is better.",
            None: f"{for_each}; equal costs per location were not compared.",
        }[equal_cost]
    return {
        Relation.HIGHER: f"So use {plain}: here the past does not make reports more useful.",
        Relation.ALIKE: f"So use {plain}: looking at the past makes no difference that matters here.",
        Relation.MIXED: f"So it depends on ε: {context} where it loses less, {plain} elsewhere.",
        Relation.UNDECIDED: f"These walks cannot decide whether to look at the past; {plain} is the simpler choice.",
    }[equal_epsilon]


def cost_answers(panel: Panel) -> Iterator[str]:
    """Yield what privacy costs with the recommended mechanism."""
    method = recommended(panel)
    losses = [] if method is None else panel.series(method, Measure.HELD_OUT_LOSS)
    if method is None or not losses:
        return
    unit = panel.unit(Measure.HELD_OUT_LOSS)
    yield (
        f"{label_of(method)} loses "
        + ", ".join(f"{value.value:.3g}" for _, value in losses)
        + f" {unit} on held-out walks at ε = {', '.join(number(point) for point, _ in losses)} per km."
    )
    kept = {point: share for point in panel.points if (share := worth_left(panel, method, point)) is not None}
    if not kept:
        return
    exact, nothing = (
        panel.number(method, name, next(iter(kept))) for name in (Measure.NO_PRIVACY_LOSS, Measure.CONSTANT_LOSS)
    )
    yield (
        f"An exact report would lose {exact:.3g} {unit}, since vehicles move on before it is used; one that says "
        f"nothing would lose {nothing:.3g} {unit}. The difference is what reports are worth. In design, "
        f"{', '.join(percent(share) for share in kept.values())} of it is left."
    )
    useless = [point for point, share in kept.items() if share < _LITTLE]
    if useless:
        yield (
            f"At {epsilons(panel, useless)} less than a tenth is left: in zones as small as these, such reports "
            "tell the service little more than the zone."
        )


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
    for attack, who in (
        (INFERENCE, "sees a single report and knows how probable places are"),
        (CONTEXT_INFERENCE, "also knows the place before"),
        (TRACKING, f"follows {row} reports in a row and knows how vehicles move"),
    ):
        success, error, guess = (
            panel.number(method, measure, point) for measure in (attack.success, attack.error, attack.blind_success)
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
    series = panel.series(method, TRACKING.success)
    if not series:
        return
    winning = [point for point, value in series if value.value > 0.5]
    learning = [
        point
        for point, value in series
        if (guess := panel.value(method, TRACKING.blind_success, point)) is not None
        and (value.interval.low if value.interval else value.value)
        > (guess.interval.high if guess.interval else guess.value)
    ]
    if winning:
        yield f"So the tracking attacker wins (it is right more often than not) at {epsilons(panel, winning)}."
    elif learning:
        yield (
            f"So the tracking attacker learns something from reports at {epsilons(panel, learning)}, but is "
            "wrong more often than right at every ε."
        )
    else:
        yield "So at no ε is the tracking attacker surely better than one that sees no reports."


def _who_is_tracked(panel: Panel) -> Iterator[str]:
    """Say whether looking at the past tells a tracking attacker more, at equal ε."""
    context, plain = primary(panel), best_plain(panel)
    if context is None or plain is None:
        return
    more: list[float | str] = []
    less: list[float | str] = []
    unsure: list[float | str] = []
    for point in panel.points:
        ours, theirs = (panel.value(method, TRACKING.success, point) for method in (context, plain))
        if ours is None or theirs is None or ours.interval is None or theirs.interval is None:
            continue
        if ours.interval.overlaps(theirs.interval):
            unsure.append(point)
        else:
            (more if ours.interval.above(theirs.interval) else less).append(point)
    for points, words in (
        (more, f"it is right more often with {label_of(context)} than with {label_of(plain)}"),
        (less, f"it is right less often with {label_of(context)} than with {label_of(plain)}"),
        (unsure, f"whether {label_of(context)} or {label_of(plain)} tells it more cannot be decided"),
    ):
        if points:
            yield f"At {epsilons(panel, points)}, {words}."


def _front(panel: Panel) -> Iterator[str]:
    front = pareto_front(panel, TRACKING.error, panel.methods)
    if len(front) > 1:
        counts = Counter(method for _, _, method, _ in front).most_common()
        total = sum(len(panel.series(method, TRACKING.error)) for method in panel.methods)
        yield (
            f"Of {total} choices of method and ε, {len(front)} are beaten by no other in both loss and the tracking "
            f"attacker's error: {', '.join(f'{label_of(method)} ({many})' for method, many in counts)}."
        )


def _least(panel: Panel) -> str:
    wins = sorted(least_loss_at(panel, panel.methods).items(), key=lambda win: -len(win[1]))
    if not wins:
        return "No method was measured on held-out walks."
    winners = "; ".join(f"{label_of(method)} at {epsilons(panel, points)}" for method, points in wins)
    return f"The least loss on held-out walks: {winners}."
