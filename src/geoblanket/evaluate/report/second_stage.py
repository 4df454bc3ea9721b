"""What second stages gain: each beside its first stage, and beside the same rows solved directly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from geoblanket._display import UNKNOWN
from geoblanket._page import Page
from geoblanket.evaluate.measures.catalogue import Measure
from geoblanket.evaluate.methods import METHODS
from geoblanket.evaluate.report.tables import Table
from geoblanket.evaluate.results import ALL_ZONES, SETTING_COLUMNS

__all__ = ["add_second_stages", "second_stage_tables"]

_HEADER = (
    "", "ε", "first stage", "refined", "gain", "direct", "gain", "bound", "held out: first stage", "refined", "direct",
)  # fmt: skip
_Losses = Mapping[tuple[str, str], float]
"""By method and measure."""


def add_second_stages(page: Page, results: pl.DataFrame) -> None:
    """Add a table for each city and kind of loss that has methods of two stages."""
    tables = list(second_stage_tables(results))
    if not tables:
        return
    page.heading("What a second stage gains")
    page.paragraph(
        "The first stage finds mechanisms over coarse rows. The second splits these by one more place of the past and "
        "lets the parts differ, while on average they report as before. All losses in design are over the split rows. "
        "Direct: the split rows solved without a first stage, and below which proven bound no mechanism over them is. "
        "What that gains more is what keeping to the first stage costs."
    )
    for table in tables:
        table.add_to(page)


def second_stage_tables(results: pl.DataFrame) -> Iterator[Table]:
    """Yield the losses of two-stage methods, of all zones together, a table for each comparison.

    Parameters
    ----------
    results
        A table of `RESULTS_SCHEMA`.
    """
    refined = [key for key, method in METHODS.items() if method.stages is not None]
    together = results.filter(zone=ALL_ZONES)
    shared = [name for name in SETTING_COLUMNS if name not in ("method", "epsilon")]
    for keys, part in together.group_by(shared, maintain_order=True):
        setting = dict(zip(shared, keys, strict=True))
        rows = [row for (epsilon,), cell in part.group_by("epsilon", maintain_order=True)
                for row in _rows(_losses(cell), refined, float(epsilon))]  # fmt: skip  # type: ignore[arg-type]  # a group key
        if rows:
            yield Table(_HEADER, rows, _caption(setting, part))


def _losses(part: pl.DataFrame) -> _Losses:
    return {
        (method, measure): value for method, measure, value in part.select("method", "measure", "value").iter_rows()
    }


def _rows(losses: _Losses, refined: list[str], epsilon: float) -> Iterator[tuple[str, ...]]:
    for method in refined:
        stages = METHODS[method].stages
        before, loss = (losses.get((method, name)) for name in (Measure.FIRST_STAGE_LOSS, Measure.DESIGN_LOSS))
        if stages is None or before is None or loss is None:
            continue
        first, direct = stages
        best = losses.get((direct, Measure.DESIGN_LOSS))
        held_out = (losses.get((key, Measure.HELD_OUT_LOSS)) for key in (first, method, direct))
        yield (
            METHODS[first].label, f"{epsilon:g}", _text(before), _text(loss), _gain(loss, before), _text(best),
            _gain(best, before), _text(losses.get((method, Measure.LOWER_BOUND))), *map(_text, held_out),
        )  # fmt: skip


def _caption(setting: Mapping[str, Any], part: pl.DataFrame) -> str:
    unit = part.filter(measure=Measure.DESIGN_LOSS)["unit"][0]
    variant = f", {setting['variant']}" if setting["variant"] else ""
    return (
        f"{str(setting['city']).title()}, {setting['experiment']}{variant}: expected loss ({setting['loss_case']}, "
        f"{unit}), zones of at most {setting['max_places']} places."
    )


def _text(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.4f}"


def _gain(loss: float | None, before: float) -> str:
    return UNKNOWN if loss is None or not before > 0 else f"{1 - loss / before:.2%}"
