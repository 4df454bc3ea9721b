from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.chains import of_order_1
from geoblanket._arrayfile import write_arrays
from geoblanket._geodesy import haversine_m
from geoblanket._training import NOBODY, NOT_SAID, WALKS, ReleasedReports, Training
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.tracking.motion_model import MAGIC, MotionModel, TripShape
from tests.model_files import edit_model
from tests.promises import promise, promised
from tests.tracking.chains import PLACES_E7, second_order


def test_by_distance_alone() -> None:
    model = MotionModel.by_distance(PLACES_E7, interval_s=60.0)
    lat, lon = PLACES_E7.T * 1e-7
    weight = np.exp(-haversine_m(lat[:, None], lon[:, None], lat, lon) / 400.0)
    np.testing.assert_allclose(model.moves.toarray(), weight / weight.sum(axis=1, keepdims=True), rtol=1e-5)
    assert (model.memory, model.start.tolist()) == (1, pytest.approx([1 / 3] * 3))


def test_a_file_gives_back_the_model(tmp_path: Path) -> None:
    model = replace(second_order(), learned={"from": "a table"})
    model.save(tmp_path / "one.model")
    loaded = MotionModel.load(tmp_path / "one.model")
    assert loaded.identity == model.identity
    assert loaded.learned == {"from": "a table"}
    loaded.save(tmp_path / "two.model")
    assert (tmp_path / "one.model").read_bytes() == (tmp_path / "two.model").read_bytes()


def test_a_file_knows_hours_and_lengths(tmp_path: Path) -> None:
    trips = TripShape.of([8, 8, 17], [3, 4, 20])
    replace(second_order(), hours=trips.hours, lengths=trips.lengths).save(tmp_path / "x.model")
    loaded = MotionModel.load(tmp_path / "x.model")
    np.testing.assert_array_equal(loaded.hours, trips.hours)
    np.testing.assert_array_equal(of_order_1(loaded).lengths, trips.lengths)


def test_a_file_from_before_hours_were_known(tmp_path: Path) -> None:
    model = second_order()
    arrays = {name: getattr(model, name) for name in ("places_e7", "states", "start", "offsets", "targets", "chances")}
    fields = {"interval_s": 30.0, "places_identity": "", "spread_m": 0.0, "learned": {}}
    write_arrays(tmp_path / "x.model", magic=MAGIC, fields=fields, arrays=arrays)
    assert MotionModel.load(tmp_path / "x.model").identity == model.identity


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.model"
    second_order().save(path)
    content = bytearray(path.read_bytes())
    for position in range(0, len(content), 7):
        content[position] ^= 1
        path.write_bytes(content)
        with pytest.raises(InputError, match="motion model"):
            MotionModel.load(path)
        content[position] ^= 1


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("offsets", np.array([0, 3, 5, 8, 11, 12]), "do not fit"),
        ("start", np.ones(4, np.float32) / 4, "do not fit"),
        ("chances", np.ones(14), "another type"),
        ("interval_s", 0.0, "86,400 seconds"),
        ("hours", np.ones(23, np.float32) / 23, "do not fit"),
        ("hours", np.ones(24) / 24, "another type"),
    ],
)
def test_what_cannot_be_a_model_is_refused(name: str, value: object, problem: str) -> None:
    with pytest.raises(ParameterError, match=problem):
        replace(second_order(), **{name: value})  # type: ignore[arg-type]  # wrong on purpose


def test_without_memory_the_flow_between_places_stays() -> None:
    model = second_order()
    plain = of_order_1(model)
    flow = model.to_places @ (model.usual[:, None] * model.moves.toarray()) @ model.to_places.T.toarray()
    np.testing.assert_allclose(plain.moves.toarray(), flow / flow.sum(axis=1, keepdims=True), atol=1e-5)
    np.testing.assert_allclose(plain.usual, model.to_places @ model.usual, atol=2e-3)


def test_in_the_long_run() -> None:
    model = second_order()
    values, vectors = np.linalg.eig(model.moves.toarray().astype(float).T)
    stationary = np.real(vectors[:, np.argmax(np.real(values))])
    np.testing.assert_allclose(model.usual, stationary / stationary.sum(), atol=2e-3)


def test_steps_must_fit_into_the_interval() -> None:
    assert second_order().steps_in(90.0) == 3
    for interval_s in (15.0, 45.0, 100.0):
        with pytest.raises(MismatchError, match="30 s"):
            second_order().steps_in(interval_s)


REPORTS = ReleasedReports("ab", 20.0, 55)
UNKNOWN_REPORTS = Training("released", released=(ReleasedReports(),))
PRIVATE = {"from": "private", "promise": promise().as_json(), "order": "2"}


@pytest.mark.parametrize(
    ("learned", "training", "words"),
    [
        ({"from": "roads"}, NOBODY, "from the road network alone"),
        ({"from": "distance"}, NOBODY, "from distances between places alone"),
        (
            {"from": "roads", "order": "by blanket"},
            WALKS,
            "from the road network alone: learned without privacy for those in the traces",
        ),
        (
            {"from": "roads and walks", "steps": 12_345},
            WALKS,
            "from the road network and 12,345 steps of walks: learned without privacy for those in the traces",
        ),
        (
            {"from": "roads and walks", "training": promised().as_json()},
            promised(),
            "from the road network and walks: learned with ε = 1, δ = 1e-06 for each vehicle",
        ),
        (
            {"from": "roads and walks", "training": promised().as_json(), "order": "by blanket"},
            WALKS,
            "from the road network and walks: learned without privacy for those in the traces",
        ),
        (PRIVATE, promised(), "from the road network and walks: learned with ε = 1, δ = 1e-06 for each vehicle"),
        (
            PRIVATE | {"training": WALKS.as_json()},
            WALKS,
            "from the road network and walks: learned without privacy for those in the traces",
        ),
        (
            {"from": "released", "start": {"from": "roads"}, "reports": 200_000},
            UNKNOWN_REPORTS,  # as in files of earlier versions
            "from 200,000 released reports, started with a model from the road network alone; all in all learned from "
            "released reports, ε unknown",
        ),
        (
            {"from": "released", "start": {"from": "roads"}, "released": asdict(REPORTS)},
            Training("released", released=(REPORTS,)),
            "from released reports, started with a model from the road network alone; all in all learned from "
            "released reports, ε = 20 per km for each and at most 55 of one vehicle",
        ),
        (
            {"from": "released", "start": {"from": "released", "start": PRIVATE}, "released": asdict(REPORTS)},
            promised().together(UNKNOWN_REPORTS).together(Training("released", released=(REPORTS,))),
            "from released reports, started with a model from released reports, started with a model from the road "
            "network and walks: learned with ε = 1, δ = 1e-06 for each vehicle; all in all learned with ε = 1, "
            "δ = 1e-06 for each vehicle, and from released reports, ε unknown",
        ),
        (
            {"from": "released", "start": PRIVATE, "reports": 7, "training": WALKS.as_json()},
            WALKS.together(UNKNOWN_REPORTS),
            "from 7 released reports, started with a model from the road network and walks: learned with ε = 1, "
            "δ = 1e-06 for each vehicle; all in all learned without privacy for those in the traces, and from released "
            "reports, ε unknown",
        ),
        ({"from": "a table"}, NOT_SAID, "from what its file does not say"),
        ({"from": ["roads"]}, NOT_SAID, "from what its file does not say"),
        ({}, NOT_SAID, "from what its file does not say"),
    ],
)
def test_what_it_was_learned_from(learned: dict[str, Any], training: Training, words: str, tmp_path: Path) -> None:
    model = replace(second_order(), learned=learned)
    model.save(tmp_path / "x.model")
    loaded = MotionModel.load(tmp_path / "x.model")
    assert (loaded.training, loaded.in_words()) == (training, words)
    assert of_order_1(loaded).training == training


UNTRUE: dict[str, Callable[[dict[str, Any]], object]] = {
    "a smaller ε": lambda learned: learned["promise"].update(epsilon=0.5),
    "less noise": lambda learned: learned["promise"]["parts"][1].update(scale=1.0),
    "no promise": lambda learned: learned.pop("promise"),
    "another promise": lambda learned: learned.update(promise="ε = 1"),
    "a statement that is none": lambda learned: learned.update(training="private"),
    "no start": lambda learned: learned.update({"from": "released"}),
    "a start that is none": lambda learned: learned.update({"from": "released", "start": ["roads"]}),
    "a start that is untrue": lambda learned: learned.update({"from": "released", "start": {"from": "private"}}),
}


@pytest.mark.parametrize("name", UNTRUE)
def test_a_statement_that_cannot_be_true_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.model"
    replace(second_order(), learned=PRIVATE | {"promise": promise().as_json()}).save(path)
    edit_model(path, UNTRUE[name])
    with pytest.raises(InputError, match=r"x\.model: is not a motion model .* or was changed: "):
        MotionModel.load(path)


def test_endless_starts_are_refused() -> None:
    learned: dict[str, Any] = {"from": "roads"}
    for _ in range(101):
        learned = {"from": "released", "start": learned}
    with pytest.raises(ParameterError, match="from which model it started"):
        replace(second_order(), learned=learned)
