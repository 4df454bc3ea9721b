from __future__ import annotations

import math
from pathlib import Path

import pytest

from geoblanket.errors import InputError, ParameterError
from geoblanket.lab.evaluate.experiment import read_experiment, shipped_experiments
from geoblanket.lab.evaluate.methods import METHODS
from geoblanket.lab.study.cities import SETTINGS

GOOD = """
title = "One"
[setting]
methods = ["lp", "expmech"]
[[vary]]
epsilon = [1, 2]
history_weights = [[0.0], [inf], [1.0, 0.5]]
[[vary]]
epsilon = 4
history_weights = [1.0, 0.5]
variant = "alone"
"""


def written(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_every_combination_is_a_setting(tmp_path: Path) -> None:
    experiment = read_experiment(written(tmp_path, GOOD))
    assert experiment.name == "mine"
    found = [(one.epsilon, one.history_weights, one.variant) for one in experiment.settings]
    weights: list[tuple[float, ...]] = [(0.0,), (math.inf,), (1.0, 0.5)]
    assert found == [(epsilon, w, "") for epsilon in (1.0, 2.0) for w in weights] + [(4.0, (1.0, 0.5), "alone")]
    assert {one.methods for one in experiment.settings} == {("lp", "expmech")}


def test_shipped_experiments_can_be_read_and_are_quicker_when_quick() -> None:
    assert {"quick", "paper", "history_weight", "equal_cost"} <= set(shipped_experiments())
    for name, title in shipped_experiments().items():
        experiment, quick = read_experiment(name), read_experiment(name, quick=True)
        assert experiment.title == title
        assert 0 < len(quick.settings) <= len(experiment.settings)
        assert quick.zones == (6 if name == "published" else 1)  # of many small zones
        assert max(one.max_rows for one in quick.settings) <= 300


def test_the_papers_experiment_has_its_methods_and_budgets() -> None:
    paper = read_experiment("paper")
    main = [one for one in paper.settings if one.loss_case == "population"]
    assert [one.epsilon for one in main] == [0.25, 0.5, 1, 2, 4, 8]
    # Longer orders have experiments of their own.
    others = ("order:2", "order:3")
    in_zones = {key for key, method in METHODS.items() if not method.only_city_wide and method.rows not in others}
    assert all(set(one.methods) == in_zones for one in main)
    assert {one.loss_case for one in paper.settings} == {"population", "case II"}
    assert paper.destinations == 500


def test_the_published_setting_is_as_the_paper_states_it() -> None:
    published = read_experiment("published")
    for case in ("population", "case II"):
        settings = [one for one in published.settings if one.loss_case == case]
        assert [one.epsilon for one in settings] == [0.1, 0.2, 0.3, 0.4, 0.5]
        assert {(one.eta_km, one.max_places, one.spacing_m) for one in settings} == {(5.0, 50, None)}
        named = {"lp_cmdp", "lp_true_mb", "lp_markov1", "lp", "constopt", "constopt_peaks", "expmech_published", "tem"}
        assert all(named <= set(one.methods) for one in settings)
    assert (published.destinations, published.zones) == (500, 0)
    setting = SETTINGS["published"]
    assert (setting.spacing_m, setting.by, setting.test) == (0.0, ("hour", "speed", "region"), "scetbon")
    assert (setting.network.learning_rate, setting.network.patience) == (1e-5, 400)
    assert setting.time_zone == "UTC"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("title = 'x'\n[[vary]]\nepsilon = 1\nmethods = ['lq']", ["unknown methods lq"]),
        ("[[vary]]\nepsilon = 1\nmethods = ['lp']", ["title is missing"]),
        ("title = 'x'", ["no settings"]),
        ("title = 'x'\nzone = 3\n[[vary]]\nepsilon = 0\nmethods = ['lp']", ["did you mean 'zones'", "epsilon must be"]),
        ("title = 'x'\n[[vary]]\nepsilon = 1\nmethods = ['lp']\nhistory_weights = [-1.0]", ["history_weights"]),
        ("title = 'x'\n[[vary]]\nepsilon = 'two'\nmethods = ['lp']", ["epsilon must be a number"]),
        ("title = 'x'\n[[vary]]\nmethods = ['lp']", ["epsilon"]),
        ("title = 'x'\n[[vary]]\nepsilon = 1\nmethods = ['lp']\nmax_rows = [50, 60]", ["told apart"]),
        (
            "title = 'x'\n[[vary]]\nepsilon = 1\nmethods = ['lp_order3']\nhistory_weights = [1, 1]",
            ["order 3 needs as many history weights, got 2"],
        ),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ParameterError) as raised:
        read_experiment(written(tmp_path, text))
    for word in words:
        assert word in str(raised.value)


def test_unknown_names_are_told_with_a_guess(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'paper'"):
        read_experiment("papers")
    with pytest.raises(InputError, match="no such file"):
        read_experiment(str(tmp_path / "none.toml"))
    with pytest.raises(InputError, match="TOML"):
        read_experiment(written(tmp_path, "title ="))
