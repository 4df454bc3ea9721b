from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from geoblanket.errors import GuaranteeViolation, MismatchError, ParameterError
from geoblanket.lab.baselines import exponential
from geoblanket.lab.evaluate.experiment import read_experiment
from geoblanket.lab.evaluate.methods import METHODS, OwnMaker
from geoblanket.lab.evaluate.panels import label_of
from geoblanket.lab.evaluate.report import write_report
from geoblanket.lab.evaluate.results import read_results
from geoblanket.lab.evaluate.running import evaluate_cities
from geoblanket.mechanism.problem import Problem
from tests.lab.evaluate.towns import Town

OWN = """
import numpy as np
from geoblanket.lab.baselines import exponential


def as_published(problem):
    return exponential(problem, problem.distance_km)


def the_truth(problem):
    return np.eye(problem.row_count)


def of_another_epsilon(problem):
    weaker = type(problem)(
        loss=problem.loss, prior=problem.prior, distance_km=problem.distance_km, epsilon=2 * problem.epsilon
    )
    return exponential(weaker, weaker.distance_km)


not_a_function = 3
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def line() -> Problem:
    places_km = np.array([0.0, 0.4, 1.1, 1.5])
    distance_km = abs(places_km[:, None] - places_km)
    return Problem(loss=distance_km, prior=np.full(4, 0.25), distance_km=distance_km, epsilon=2.0)


def test_it_is_verified_for_the_problem_whatever_it_returns(own: Path) -> None:
    problem = line()
    published = OwnMaker.named(f"{own}:as_published").make(problem)
    assert np.array_equal(published.weights, exponential(problem, problem.distance_km).weights)
    repaired = OwnMaker.named(f"{own}:the_truth").make(problem)
    assert repaired.certificate.epsilon_effective <= 2.0
    with pytest.raises(GuaranteeViolation):
        OwnMaker.named(f"{own}:of_another_epsilon").make(problem)


def test_what_is_no_function_in_a_file_is_refused(own: Path) -> None:
    (own.parent / "broken.py").write_text("1 / 0")
    for method, problem in {
        f"{own}:nothing": "has no function 'nothing'",
        f"{own}:not_a_function": "has no function 'not_a_function'",
        f"{own.parent}/absent.py:f": "no such file",
        f"{own.parent}/broken.py:f": r"cannot be run \(ZeroDivisionError",
    }.items():
        with pytest.raises(ParameterError, match=problem):
            OwnMaker.named(method).load()
    for wrong in ("own.py:", "own:f", "own.txt:f", "own.py:f()"):
        with pytest.raises(ParameterError, match=r"named FILE\.py:FUNCTION"):
            OwnMaker.named(wrong)
    with pytest.raises(KeyError):
        METHODS["nobody"]


def test_it_takes_part_in_a_comparison_like_any_other(town: Town, own: Path, tmp_path: Path) -> None:
    methods = [f"{own}:as_published", f"{own}:of_another_epsilon"]
    quick = read_experiment(str(town.experiment), quick=True)
    experiment = quick.replaced(
        settings=tuple(each.replaced(methods=("lp", "expmech_published")) for each in quick.settings)
    )
    experiment = experiment.with_methods(methods)
    found = evaluate_cities([town.files], [experiment], tmp_path / "out", workers=1)
    assert not found.violations
    losses = {
        method: found.results.filter(method=method, measure="held_out_loss")["value"].to_list()
        for method in ("expmech_published", *methods)
    }
    assert losses[methods[0]] == pytest.approx(losses["expmech_published"], rel=1e-5)  # distances in whole millimetres
    assert losses[methods[0]]
    assert not losses[methods[1]]  # it promises less than was asked for
    assert any(methods[1] in note for note in found.notes)
    assert label_of(methods[0]) == "as published"
    results, about = read_results(tmp_path / "out")
    assert about["own_methods"].keys() == set(methods)
    page = write_report(results, tmp_path / "page", about=about)
    assert "as published" in page.read_text("utf-8")


def test_a_run_is_not_resumed_with_another_function(town: Town, own: Path, tmp_path: Path) -> None:
    quick = read_experiment(str(town.experiment), quick=True)
    experiment = quick.replaced(settings=tuple(each.replaced(methods=("expmech",)) for each in quick.settings))
    experiment = experiment.with_methods([f"{own}:as_published"])

    def stop(phase: str, done: float, total: float | None) -> None:  # noqa: ARG001
        if "tracking" in phase:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_cities([town.files], [experiment], tmp_path / "out", workers=1, progress=stop)
    own.write_text(OWN + "\n# changed")
    with pytest.raises(MismatchError):
        evaluate_cities([town.files], [experiment], tmp_path / "out", workers=1, resume=True)
