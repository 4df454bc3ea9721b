"""Products with sparse matrices, by SciPy and by NumPy alone."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.chains import of_order_1
from geoblanket._arrays import Floats
from geoblanket.mechanism.bundle.storage import load_bundle
from geoblanket.tracking import motion_model
from geoblanket.tracking.motion_model import MotionModel, SparseRows
from geoblanket.tracking.tracker import Tracker
from tests.release.lattices import LAT, LON, save_small
from tests.tracking.lattice_reports import SLOT, cells_near, near_model
from tests.tracking.worlds import dense, pair_model

NUMPY_ALONE = patch.object(motion_model, "_has_scipy", lambda: False)


@given(st.data(), st.integers(1, 9), st.integers(1, 9))
def test_products_are_those_of_dense_matrices(data: st.DataObject, rows: int, columns: int) -> None:
    """With empty rows, and with several entries in one place."""
    entry = st.tuples(st.integers(0, rows - 1), st.integers(0, columns - 1), st.integers(-9, 9))
    entries = np.array(data.draw(st.lists(entry, max_size=40)), np.int64).reshape(-1, 3)
    expected = np.zeros((rows, columns))
    np.add.at(expected, tuple(entries[:, :2].T), entries[:, 2])
    matrix = SparseRows.of_entries(entries[:, 2].astype(np.float32), entries[:, 0], entries[:, 1], (rows, columns))
    assert (matrix.toarray() == expected).all()
    assert (matrix.T.toarray() == expected.T).all()
    assert (matrix.as_scipy.toarray() == expected).all()
    for shape in ((columns,), (columns, 1), (columns, 3)):
        values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 4
        with NUMPY_ALONE:
            alone = matrix @ values
        assert alone.dtype == (matrix @ values).dtype == np.float32
        assert (alone == expected @ values).all()  # whole numbers: nothing is rounded
        assert (matrix @ values == expected @ values).all()
        with NUMPY_ALONE:
            assert (matrix @ values.astype(np.float64)).dtype == np.float64


def test_numpy_alone_does_not_ask_scipy() -> None:
    matrix = SparseRows(np.ones(2, np.float32), np.array([1, 0], np.int32), np.array([0, 1, 2]), 2)
    with NUMPY_ALONE:
        assert (matrix @ np.array([3.0, 5.0])).tolist() == [5, 3]
    assert "as_scipy" not in vars(matrix)


@pytest.mark.parametrize("alone", [False, True])
def test_chain_without_memory_moves_as_dense_matrices_say(alone: bool) -> None:
    model = pair_model()
    with patch.object(motion_model, "_has_scipy", lambda: not alone):
        plain = of_order_1(pair_model())
    member = (np.arange(24)[:, None] == model.present).astype(np.float64)
    flow: Floats = member @ ((model.usual + 1e-12)[:, None] * dense(model)) @ member.T
    np.testing.assert_allclose(dense(plain), flow / flow.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-7)


def test_tracker_needs_no_scipy(tmp_path: Path) -> None:
    bundle = load_bundle(save_small(tmp_path / "b"))
    cells = cells_near(bundle, near_model(at=(LAT, LON), across=3), [4, 4, 5, 1])

    def tracked(model: MotionModel) -> Floats:
        tracker = Tracker(bundle, model)
        seen = [tracker.see("taxi", SLOT + 2 * number, cell)[:3] for number, cell in enumerate(cells)]
        return np.array([*seen, (*tracker.places("taxi", ahead=3)[:3, 0],)])

    with_scipy = tracked(near_model(at=(LAT, LON), across=3))
    with NUMPY_ALONE:
        np.testing.assert_allclose(tracked(near_model(at=(LAT, LON), across=3)), with_scipy, rtol=1e-4)
