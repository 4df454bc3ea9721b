"""Predictor files: what is written is read again, and damaged ones are refused with a typed error."""

from __future__ import annotations

import io
import pickle
import time
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoblanket._arrayfile import read_arrays, write_arrays
from geoblanket.blanket.findings import read_labels
from geoblanket.blanket.predictor import Encoding, Network, Predictor, load_predictor, save_predictor
from geoblanket.errors import InputError
from tests.blanket.made_findings import LARGEST, learnable, make_findings
from tests.blanket.test_predictor import ORIGIN

MAGIC = b"GBPREDI1"
Fields = dict[str, Any]
Arrays = dict[str, Any]


def small() -> Predictor:
    """Return a predictor with few weights, so that every byte of its file can be tried."""
    inputs = read_labels(make_findings(learnable, hours=3, speeds=3, regions=2)).inputs
    encoding = Encoding.learned(inputs, largest=LARGEST)
    rng = np.random.default_rng(4)
    sizes = (encoding.width, 3, 2, 1)
    weights = tuple(rng.normal(size=shape) for shape in pairwise(sizes))
    return Predictor(encoding, Network(weights, tuple(rng.normal(size=size) for size in sizes[1:])), ORIGIN)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_predictor(small(), tmp_path / "a.predictor")
    return tmp_path / "a.predictor"


def forge(path: Path, change: Callable[[Fields, Arrays], object]) -> None:
    """Change a file and make its hashes right again."""
    fields, arrays = read_arrays(path, magic=MAGIC, kind="")
    copies = {name: np.array(array) for name, array in arrays.items()}
    change(fields, copies)
    write_arrays(path, magic=MAGIC, fields=fields, arrays=copies)


def test_what_is_written_is_read_again(path: Path) -> None:
    before, after = small(), load_predictor(path)
    assert after.origin == before.origin
    assert after.largest == LARGEST
    assert (after.table == before.table).all()
    assert len(np.unique(after.table)) > 1
    for region in (0, 1, 2):
        asked = {"hour": 2, "speed_mph": 7, "region": region}
        assert (after.probabilities(**asked) == before.probabilities(**asked)).all()
        assert after.length_by_network(**asked) == before.length(**asked)


def test_the_same_predictor_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    save_predictor(load_predictor(path), tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_a_changed_byte_anywhere_is_noticed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for position in {*range(0, len(data), 37), *range(64), len(data) - 1}:
        changed = data.copy()
        changed[position] ^= 1
        path.write_bytes(changed)
        with pytest.raises(InputError):
            load_predictor(path)


def test_shorter_and_longer_files_are_refused(path: Path) -> None:
    data = path.read_bytes()
    for wrong in (b"", data[:-1], data + b"\0", data[:40]):
        path.write_bytes(wrong)
        with pytest.raises(InputError, match="is not a predictor of blankets"):
            load_predictor(path)


def test_other_formats_are_refused(path: Path) -> None:
    npz = io.BytesIO()
    np.savez(npz, weights=np.eye(9))
    for wrong in (pickle.dumps(list(range(99))), npz.getvalue(), b"GBBUNDL2" + path.read_bytes()[8:]):
        path.write_bytes(wrong)
        with pytest.raises(InputError, match=r"other bytes|it is a"):
            load_predictor(path)
    with pytest.raises(InputError, match="no such file"):
        load_predictor(path.with_name("none"))


WRONG: dict[str, tuple[Callable[[Fields, Arrays], object], str]] = {
    "a key less": (lambda f, _: f.pop("alpha"), "alpha"),
    "a number for a text": (lambda f, _: f.update(test=1), "'test'"),
    "no interval": (lambda f, _: f.update(interval_s=None), "'interval_s'"),
    "a broken seed": (lambda f, _: f.update(seed=0.5), "'seed'"),
    "a part less": (lambda _, a: a.pop("bias_2"), "bias_2"),
    "short centre": (lambda _, a: a.update(centre=a["centre"][1:]), "can be used"),
    "layers that do not fit": (lambda _, a: a.update(bias_1=np.ones(9)), "can be used"),
    "another table": (lambda _, a: a.update(table=a["table"][:, :, 1:]), "table does not fit"),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_of_something_else_with_right_hashes_are_refused(path: Path, name: str) -> None:
    change, words = WRONG[name]
    forge(path, change)
    with pytest.raises(InputError, match=words):
        load_predictor(path)


def test_many_regions_take_no_more_memory_than_a_few_times_the_file(path: Path) -> None:
    count = 20_000

    def many(_: Fields, arrays: Arrays) -> None:
        known = len(arrays["regions"])
        arrays["regions"] = np.arange(count, dtype=np.int32)
        arrays["table"] = np.ones((24, 24, count + 1), np.uint8)
        for name in ("centre", "weights_1"):
            arrays[name] = np.concatenate([arrays[name], np.ones((count - known, *arrays[name].shape[1:]))])

    forge(path, many)
    tracemalloc.start()
    start = time.perf_counter()
    assert load_predictor(path).length(hour=1, speed_mph=1, region=count - 1) == 1
    assert time.perf_counter() - start < 5
    assert tracemalloc.get_traced_memory()[1] < 4 * path.stat().st_size
    tracemalloc.stop()
