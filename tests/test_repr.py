"""What objects say of themselves is one line, without arrays and without locations.

Most public objects are made by the examples in the docstrings, and looked at in `test_docs`; the others are made here.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from geoblanket import TrainingBudget, Trust
from geoblanket._display import between, counted, options_repr, short_repr
from geoblanket.blanket import CIResult, NetworkOptions
from geoblanket.lab.evaluate import CityFiles, Composition, Evaluation, Setting, Violation
from geoblanket.loss import (
    Effort,
    FunctionLoss,
    LossTable,
    NearestVehicle,
    StraightLine,
    TableLoss,
    TaskPrior,
    TravelCost,
)
from geoblanket.mechanism import Outcome
from geoblanket.release import LatticeSummary
from geoblanket.roads.places import choose_places
from geoblanket.tracking import DrawnWalks, Tracked
from tests.loss.roads import ONE_WAY_RING, roads
from tests.test_public_surface import PACKAGES


def is_short(text: str) -> bool:
    """Return whether a repr is one line of at most 120 characters, without arrays."""
    return len(text) <= 120 and text.isprintable() and "array(" not in text


def public_classes() -> set[type]:
    """Return all public classes of which there are objects."""
    modules = [importlib.import_module(package) for package in PACKAGES]
    found = [getattr(module, name) for module in modules for name in module.__all__]
    classes = {each for each in found if inspect.isclass(each) and not issubclass(each, BaseException)}
    return {each for each in classes if not (getattr(each, "_is_protocol", False) or inspect.isabstract(each))}


def made_by_hand() -> list[Any]:
    """Return an object of each public class that no example makes."""
    graph = roads(ONE_WAY_RING)
    places = choose_places(graph)
    table, tasks = np.ones((3, 3)), TaskPrior(np.arange(3, dtype=np.int32), np.full(3, 1 / 3))
    return [
        NetworkOptions(patience=10),
        CIResult(statistic=1 / 3, p_value=1 / 7, effect_size=1 / 9, n=12_345),
        CityFiles(name="porto", roads=Path("porto.roads"), walks=Path("walks.parquet"), time_zone="Europe/Lisbon"),
        Composition(reports=10, per_report=2.0, per_location=5.0, per_trajectory=50.0),
        DrawnWalks(vehicles=12, trips=345, steps=6789),
        Effort(max_tasks=10, workers=None),
        Evaluation(pl.DataFrame({"value": [1.0]}), (), (Violation("bound", "Porto", "a long story " * 20),)),
        FunctionLoss(lambda true, _: np.ones((len(true), 1)), place_count=3, unit="km"),
        LatticeSummary(10, 9, 0, 0, 2, 30.0, 2.0, 8, 240.0, 5, 10.0),
        LossTable(table),
        NearestVehicle(graph, places, tasks, np.full(3, 1 / 3), vehicles=5),
        Outcome.NO_PROGRESS,
        Setting(methods=("lp", "expmech"), epsilon=2.0),
        StraightLine(places),
        TableLoss(table, "km"),
        Tracked(lat=41.1, lon=-8.6, radius_m=312.5, outcome="used"),
        TrainingBudget(epsilon=1 / 3, delta=1e-6, rho=1 / 7),
        TravelCost(graph, places, tasks),
        Trust(allow_unsigned=True),
        Violation("bound", "Porto", "a long story " * 20),
        tasks,
    ]


def test_a_fact_is_told_in_words() -> None:
    assert [counted(1, "zone"), counted(1200, "zone")] == ["1 zone", "1,200 zones"]
    assert [between(7, 7), between(5, 1200)] == ["7", "5 to 1,200"]


def test_facts_are_one_line_that_ends_in_time() -> None:
    assert short_repr(1, "a", "", "b\nc") == "<int: a, b c>"
    long = short_repr(1, "word " * 100)
    assert len(long) == 120
    assert long.endswith("…>")


@dataclass(frozen=True)
class Options:
    name: str
    size: int = 3
    file: Path | None = None

    def __repr__(self) -> str:
        return options_repr(self)


def test_options_tell_what_is_not_usual() -> None:
    assert repr(Options("a")) == "Options(name='a')"
    assert repr(Options("a", size=4, file=Path("b"))) == "Options(name='a', size=4, file='b')"


def test_an_estimate_does_not_tell_where() -> None:
    assert repr(Tracked(lat=41.1, lon=-8.6, radius_m=312.5, outcome="used")) == "<Tracked: 90 % within 312 m, used>"
