"""Which figures a report has, and what their captions say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from geoblanket.evaluate.measures.values import Value
from geoblanket.evaluate.report.figures import along_epsilon, gain_figure, pareto_figure
from geoblanket.evaluate.report.panels import Panel
from geoblanket.evaluate.report.story import IN_USE, PAPER_METHODS, Story
from geoblanket.evaluate.report.sweep_figures import (
    LOSS,
    LOSS_AND_TRACKING,
    PARTS,
    SWEEPS,
    TRACKING,
    gain_by_figure,
    sweep_figure,
)

__all__ = ["caption", "make_figures", "sweep_name"]

_CAPTIONS = {
    "loss": "The loss on held-out walks against ε, the paper's six methods, with 95 % intervals. Lower is better.",
    "gain": "By how much losses are below that of LP, with 95 % intervals of the difference on the same vehicles.",
    "loss-in-use": "The same for other mechanisms that can be had today, beside LP and methods with context.",
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
    "better; rings are beaten by nothing in both.",
    "equal-cost": "The loss where all methods cost a location the same over time: methods that use the past get a "
    "smaller ε for each report, because a location counts in later reports, too.",
    "build-time": "Seconds to find the mechanisms of all zones.",
    "one-destination": "The loss of vehicles that are sent to one destination each.",
    "case-ii": "How often the service is mistaken about which vehicle is nearest.",
}
"""What each figure shows; those of what was varied say so themselves."""

_ATTACKS = (("inference", "inference"), ("context-inference", "context_inference"), ("tracking", "tracking"))
_CASES = {"one destination": "one-destination", "case II": "case-ii"}


def caption(name: str) -> str:
    """Return what a figure shows."""
    if name in _CAPTIONS:
        return _CAPTIONS[name]
    along = next(along for along in SWEEPS if sweep_name(along) == name)
    if along in PARTS:
        return (
            f"What is saved by {SWEEPS[along]}, with 95 % intervals, which may leave the frame. Hollow: of one vehicle "
            "only, so that nothing is known about how sure it is."
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
    yield "loss", along_epsilon(main, [("held_out_loss", "loss")], methods=_drawn(main, PAPER_METHODS))
    if any("lp" in panel.methods and len(panel.methods) > 1 for panel in main):
        others = [method for method in _drawn(main, PAPER_METHODS) if method != "lp"]
        yield "gain", gain_figure(main, over="lp", methods=others)
    in_use = _drawn(main, IN_USE)
    if set(in_use) - set(PAPER_METHODS):
        yield "loss-in-use", along_epsilon(main, [("held_out_loss", "loss")], methods=in_use)
    yield from _privacy(story)
    yield from _sweeps(story)
    for loss_case, name in _CASES.items():
        panels = [panel for panel in story.other_losses if panel.loss_case == loss_case]
        if panels:
            yield name, along_epsilon(panels, [("held_out_loss", "loss")], methods=_drawn(panels, PAPER_METHODS))
    if any(panel.has("build_seconds") for panel in main):
        yield "build-time", along_epsilon(main, [("build_seconds", "time")], methods=_drawn(main, PAPER_METHODS))


def _privacy(story: Story) -> Iterator[tuple[str, Figure]]:
    main = story.main
    methods = _drawn(main, PAPER_METHODS)
    if any(panel.has("leakage_max") for panel in main):
        shares = [_share_of_epsilon(panel, ("leakage_max", "leakage_expected")) for panel in main]
        rows = [("leakage_max", "worst leakage / ε"), ("leakage_expected", "mean leakage / ε")]
        yield "leakage", along_epsilon(shares, rows, methods=methods)
    for name, prefix in _ATTACKS:
        if any(panel.has(f"{prefix}_success") for panel in main):
            rows = [(f"{prefix}_success", "share of right guesses"), (f"{prefix}_error", "error of the guess")]
            yield name, along_epsilon(main, rows, methods=methods, without_report=True)
    if any(panel.has("tracking_error") for panel in main):
        yield (
            "pareto",
            pareto_figure(main, measure="tracking_error", name="the tracking attacker's error", methods=methods),
        )


def _sweeps(story: Story) -> Iterator[tuple[str, Figure]]:
    if panels := story.sweep("equal cost"):
        yield "equal-cost", along_epsilon(panels, [("held_out_loss", "loss")], methods=_drawn(panels, PAPER_METHODS))
    for along in SWEEPS:
        panels = story.sweep(along)
        if not panels:
            continue
        name = sweep_name(along)
        if along in PARTS:
            pair = story.pair(panels[0])
            if pair is not None:
                yield name, gain_by_figure(panels, method=pair[0], over=pair[1])
            continue
        rows = TRACKING if along == "reports" else LOSS
        if along == "history_weight" and panels[0].has("tracking_success"):
            rows = LOSS_AND_TRACKING
        varied = [one for one in PAPER_METHODS if any(len(panel.series(one, rows[0][0])) > 1 for panel in panels)]
        yield name, sweep_figure(panels, methods=varied, rows=rows)


def _drawn(panels: Sequence[Panel], methods: Sequence[str]) -> list[str]:
    return [one for one in methods if any(panel.series(one, "held_out_loss") for panel in panels)]


def _share_of_epsilon(panel: Panel, measures: Sequence[str]) -> Panel:
    values = {
        key: Value(value.measure, value.value / float(key[1]), "")
        for key, value in panel.values.items()
        if key[2] in measures
    }
    return replace(panel, values=values)
