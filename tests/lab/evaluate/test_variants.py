from __future__ import annotations

import pytest

from geoblanket.lab.evaluate.experiment import (
    Setting,
    Varied,
    joined,
    read_experiment,
    read_variant,
    shipped_experiments,
    variant_of,
)


@pytest.mark.parametrize(
    ("varied", "value", "text", "read"),
    [
        (Varied.EQUAL_COST, "per location", "equal cost per location", "per location"),
        (Varied.DELAY, 4, "delay 4", 4.0),
        (Varied.BLANKET, "too short", "blanket too short", "too short"),
        (Varied.ROWS, 900, "900 rows", 900.0),
        (Varied.REPORTS, 20, "T = 20", 20.0),
    ],
)
def test_what_is_written_is_read_back(varied: Varied, value: float | str, text: str, read: float | str) -> None:
    assert variant_of(varied, value) == text
    assert read_variant(text) == {varied: read}
    assert read_variant(joined("my own words", text)) == {varied: read}


def test_several_at_once_and_none() -> None:
    both = Setting(methods=("lp",), epsilon=1.0, equal_cost=True, delay=2).described
    assert read_variant(both) == {Varied.EQUAL_COST: "per location", Varied.DELAY: 2.0}
    assert read_variant("") == read_variant("many rows") == read_variant("T = some") == {}


def test_every_variant_of_shipped_experiments_is_understood() -> None:
    settings = [setting for name in shipped_experiments() for setting in read_experiment(name).settings]
    assert all(read_variant(setting.described) for setting in settings if setting.described)
