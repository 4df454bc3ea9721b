from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from geoblanket._arrayfile import write_arrays
from geoblanket._geodesy import haversine_m
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.tracking.motion_model import MAGIC, MotionModel
from geoblanket.tracking.trip_shape import TripShape
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
    np.testing.assert_array_equal(loaded.of_order_1().lengths, trips.lengths)


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
        ("chances", np.full(14, 0.5, np.float32), "sum to 1"),
        ("start", np.array([1.5, -0.5, 0, 0, 0], np.float32), "negative"),
        ("start", np.full(5, np.nan, np.float32), "sum to 1"),
        ("targets", np.full(14, 5, np.int32), "no state"),
        ("offsets", np.array([0, 3, 5, 8, 14, 14]), "every state"),
        ("states", np.full((5, 2), 3, np.int32), "no place"),
        ("states", np.zeros((5, 4), np.int32), "1 to 3 places"),
        ("places_e7", np.full((3, 2), 2_000_000_000, np.int32), "not on Earth"),
        ("start", np.ones(4, np.float32) / 4, "do not fit"),
        ("chances", np.ones(14), "another type"),
        ("interval_s", 0.0, "86,400 seconds"),
        ("hours", np.ones(23, np.float32) / 23, "24 and lengths 18 shares"),
        ("hours", np.ones(24) / 24, "24 and lengths 18 shares"),
        ("lengths", np.ones(18, np.float32), "sum to 1"),
        ("lengths", np.full(18, np.nan, np.float32), "sum to 1"),
    ],
)
def test_what_cannot_be_a_model_is_refused(name: str, value: object, problem: str) -> None:
    with pytest.raises(ParameterError, match=problem):
        replace(second_order(), **{name: value})  # type: ignore[arg-type]  # wrong on purpose


def test_without_memory_the_flow_between_places_stays() -> None:
    model = second_order()
    plain = model.of_order_1()
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
