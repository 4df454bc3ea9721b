"""Which figures a report has, and what their captions say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from geoblanket.evaluate.measures.catalogue import CONTEXT_INFERENCE, INFERENCE, TRACKING, Measure, Value
from geoblanket.evaluate.methods import is_own
from geoblanket.evaluate.report.figures import (
    PARTS,
    SWEEPS,
    gain_by_figure,
    gain_figure,
    measure_figure,
    pareto_figure,
)
from geoblanket.evaluate.report.panels import Panel
from geoblanket.evaluate.report.story import IN_USE, PAPER_METHODS, Story
from geoblanket.evaluate.settings import Varied

__all__ = ["caption", "make_figures", "sweep_name"]

_CAPTIONS = {
    "loss": "The loss on held-out walks against ε, the paper's six methods, with 95 % intervals. Lower is better.",
    "gain": "By how much losses are below that of LP, with 95 % intervals of the difference on the same vehicles.",
    "loss-in-use": "The same for other mechanisms in use today, beside LP and methods with context.",
    "leakage": "Posterior leakage as a share of ε: the worst of any report and pair of places (above), and the mean "
    "(below). At 1 all of the promise is used.",
    "inference": "The best attacker on a single report who knows how probable each place is: how often it names the "
    "right place, and how far off its best guess is.",
    "context-inference": "The same attacker, who also knows the place before.",
    "tracking": "The attacker who follows reports in a row and knows how vehicles move, on held-out walks.",
    "sweep-reports": "What an attacker makes of more reports in a row (above), and the bound that composition gives "
    "for them (below): the cost for a way that is moved all along.",
    "sweep-history-weight": "The price of protecting the past: the loss on held-out walks (above), and how often the "
    "tracking attacker names the right place (below), along w, what the place before counts in distances.",
    "pareto": "Utility against privacy: the loss and the tracking attacker's error. Lines run along ε. Lower right is "
    "better; nothing beats the ringed points in both.",
    "equal-cost": "The loss where all methods cost a location the same over time: methods that use the past get a "
    "smaller ε for each report, because a location counts in later reports, too.",
    "build-time": "Seconds to find the mechanisms of all zones.",
    "one-destination": "The loss of vehicles that are sent to one destination each.",
    "case-ii": "How often the service is mistaken about which vehicle is nearest.",
}
"""What each figure shows; those of what was varied say so themselves."""

_ATTACKS = {"inference": INFERENCE, "context-inference": CONTEXT_INFERENCE, "tracking": TRACKING}
_CASES = {"one destination": "one-destination", "case II": "case-ii"}


def caption(name: str) -> str:
    """Return what a figure shows."""
    if name in _CAPTIONS:
        return _CAPTIONS[name]
    along = next(along for along in SWEEPS if sweep_name(along) == name)
    if along in PARTS:
        return (
            f"What is saved by {SWEEPS[along]}, with 95 % intervals, which may leave the frame. A hollow point is of "
            "one vehicle only, so it has no interval."
        )
    return f"The loss on held-out walks, with 95 % intervals, along: {SWEEPS[along]}."


def sweep_name(along: str) -> str:
    """Return the name of the figure of something that was varied."""
    return f"sweep-{along.removesuffix('_km').removesuffix('_m').removesuffix('_s').replace('_', '-')}"


def make_figures(story: Story) -> Iterator[tuple[str, Figure]]:
    """Yield every figure that results have the numbers for, with its name."""
    main = story.main
    if not main:
        return
    of_paper, in_use = _drawn(main, PAPER_METHODS), _drawn(main, IN_USE)
    yield "loss", measure_figure(main, [Measure.HELD_OUT_LOSS], methods=of_paper)
    if any("lp" in panel.methods and len(panel.methods) > 1 for panel in main):
        yield "gain", gain_figure(main, over="lp", methods=[method for method in of_paper if method != "lp"])
    if set(in_use) - set(of_paper):
        yield "loss-in-use", measure_figure(main, [Measure.HELD_OUT_LOSS], methods=in_use)
    yield from _privacy(main, of_paper)
    yield from _sweeps(story)
    for loss_case, name in _CASES.items():
        panels = [panel for panel in story.other_losses if panel.loss_case == loss_case]
        if panels:
            yield name, measure_figure(panels, [Measure.HELD_OUT_LOSS], methods=_drawn(panels, PAPER_METHODS))
    if any(panel.has(Measure.BUILD_SECONDS) for panel in main):
        yield "build-time", measure_figure(main, [Measure.BUILD_SECONDS], methods=of_paper)


def _privacy(main: Sequence[Panel], methods: Sequence[str]) -> Iterator[tuple[str, Figure]]:
    if any(panel.has(Measure.LEAKAGE_MAX) for panel in main):
        leakages = (Measure.LEAKAGE_MAX, Measure.LEAKAGE_EXPECTED)
        shares = [_share_of_epsilon(panel, leakages) for panel in main]
        yield "leakage", measure_figure(shares, leakages, methods=methods)
    for name, attack in _ATTACKS.items():
        if any(panel.has(attack.success) for panel in main):
            yield name, measure_figure(main, (attack.success, attack.error), methods=methods, blind=True)
    if any(panel.has(TRACKING.error) for panel in main):
        name = "the tracking attacker's error"
        yield "pareto", pareto_figure(main, measure=TRACKING.error, name=name, methods=methods)


def _sweeps(story: Story) -> Iterator[tuple[str, Figure]]:
    if panels := story.sweep(Varied.EQUAL_COST):
        yield "equal-cost", measure_figure(panels, [Measure.HELD_OUT_LOSS], methods=_drawn(panels, PAPER_METHODS))
    for along in SWEEPS:
        panels = story.sweep(along)
        if not panels:
            continue
        if along in PARTS:
            if (pair := story.pair(panels[0])) is not None:
                yield sweep_name(along), gain_by_figure(panels, method=pair[0], over=pair[1])
            continue
        measures = [Measure.HELD_OUT_LOSS]
        if along == Varied.REPORTS:
            measures = [TRACKING.success, Measure.COMPOSED_EPSILON]
        elif along == "history_weight" and panels[0].has(TRACKING.success):
            measures = [Measure.HELD_OUT_LOSS, TRACKING.success]
        varied = [key for key in PAPER_METHODS if any(len(panel.series(key, measures[0])) > 1 for panel in panels)]
        yield sweep_name(along), measure_figure(panels, measures, methods=varied, blind=True)


def _drawn(panels: Sequence[Panel], methods: Sequence[str]) -> list[str]:
    """Return those of the methods that have losses, and the users' own."""
    own = dict.fromkeys(method for panel in panels for method in panel.methods if is_own(method))
    return [
        method for method in (*methods, *own) if any(panel.series(method, Measure.HELD_OUT_LOSS) for panel in panels)
    ]


def _share_of_epsilon(panel: Panel, measures: Sequence[str]) -> Panel:
    values = {
        key: Value(value.measure, value.value / float(key[1]), "")
        for key, value in panel.values.items()
        if key[2] in measures
    }
    return replace(panel, values=values)
