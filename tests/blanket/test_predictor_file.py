"""Predictor files: what is written is read again, and damaged or hostile ones are refused with a typed error."""

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
from geoblanket.blanket.features import Encoding
from geoblanket.blanket.findings import read_labels
from geoblanket.blanket.predictor import Network, Predictor
from geoblanket.blanket.predictor_file import load_predictor, save_predictor
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
    """Change a file and make its hashes right again, as someone hostile would."""
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


def test_other_formats_and_files_too_large_are_refused(path: Path) -> None:
    with pytest.raises(InputError, match="more than the 1000 allowed"):
        load_predictor(path, largest_bytes=1000)
    npz = io.BytesIO()
    np.savez(npz, weights=np.eye(9))
    for wrong in (pickle.dumps(list(range(99))), npz.getvalue(), b"GBBUNDL2" + path.read_bytes()[8:]):
        path.write_bytes(wrong)
        with pytest.raises(InputError, match=r"other bytes|it is a"):
            load_predictor(path)
    with pytest.raises(InputError, match="no such file"):
        load_predictor(path.with_name("none"))


HOSTILE: dict[str, tuple[Callable[[Fields, Arrays], object], str]] = {
    "a key less": (lambda f, _: f.pop("alpha"), "other keys"),
    "a key more": (lambda f, _: f.update(more=1), "other keys"),
    "largest 0": (lambda f, _: f.update(largest=0), "'largest'"),
    "largest 10^6": (lambda f, _: f.update(largest=10**6), "'largest'"),
    "largest true": (lambda f, _: f.update(largest=True), "'largest'"),
    "another largest": (lambda f, _: f.update(largest=4), "does not fit"),
    "text that steers a terminal": (lambda f, _: f.update(time_zone="\x1b[2J"), "'time_zone'"),
    "long text": (lambda f, _: f.update(regions="x" * 10_000), "'regions'"),
    "a number for a text": (lambda f, _: f.update(test=1), "'test'"),
    "no interval": (lambda f, _: f.update(interval_s=None), "'interval_s'"),
    "interval 0": (lambda f, _: f.update(interval_s=0), "'interval_s'"),
    "a broken seed": (lambda f, _: f.update(seed=0.5), "'seed'"),
    "a part less": (lambda _, a: a.pop("bias_2"), "parts"),
    "a part more": (lambda _, a: a.update(more=np.ones(3)), "parts"),
    "another type": (lambda _, a: a.update(table=a["table"].astype("<i4")), "'table' has another type"),
    "NaN weights": (lambda _, a: a["weights_2"].fill(np.nan), "not finite or too large"),
    "infinite bias": (lambda _, a: a["bias_3"].fill(-np.inf), "not finite or too large"),
    "huge weights": (lambda _, a: a["weights_1"].fill(1e300), "not finite or too large"),
    "short centre": (lambda _, a: a.update(centre=a["centre"][1:]), "does not fit"),
    "hour 24": (lambda _, a: a["hours"].put(-1, 24), "not one of a day"),
    "hour -1": (lambda _, a: a["hours"].put(0, -1), "'hours' is not in order"),
    "speed 7": (lambda _, a: a["speeds_mph"].put(-1, 17), "lower edge"),
    "speed 120": (lambda _, a: a["speeds_mph"].put(-1, 120), "lower edge"),
    "a region twice": (lambda _, a: a["regions"].fill(1), "'regions' is not in order"),
    "layers that do not fit": (lambda _, a: a.update(bias_1=np.ones(9)), "sizes of its layers"),
    "layer without units": (
        lambda _, a: a.update(weights_1=a["weights_1"][:, :0], bias_1=np.ones(0), weights_2=np.ones((0, 2))),
        "sizes of its layers",
    ),
    "two outputs": (lambda _, a: a.update(weights_3=np.ones((2, 2)), bias_3=np.ones(2)), "one output"),
    "another table": (lambda _, a: a.update(table=a["table"][:, :, 1:]), "table does not fit"),
    "length 0": (lambda _, a: a["table"].fill(0), "not possible"),
    "length 255": (lambda _, a: a["table"].put(5, 255), "not possible"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_with_right_hashes_are_refused(path: Path, name: str) -> None:
    change, words = HOSTILE[name]
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
