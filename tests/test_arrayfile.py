from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from geoblanket._arrayfile import read_arrays, write_arrays
from geoblanket._arrays import Octets
from geoblanket.errors import InputError

MAGIC = b"GBTESTS1"


def written(folder: Path) -> Path:
    path = folder / "some.arrays"
    arrays: dict[str, npt.NDArray[Any]] = {"a": np.arange(5, dtype=np.int32), "b": np.eye(3), "empty": np.empty(0)}
    write_arrays(path, magic=MAGIC, fields={"unit": "m"}, arrays=arrays)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    fields, arrays = read_arrays(written(tmp_path), magic=MAGIC, kind="a test")
    assert fields == {"unit": "m"}
    np.testing.assert_array_equal(arrays["a"], np.arange(5))
    np.testing.assert_array_equal(arrays["b"], np.eye(3))
    assert arrays["empty"].shape == (0,)
    assert not arrays["a"].flags.writeable


def test_same_content_gives_same_bytes(tmp_path: Path) -> None:
    first = written(tmp_path).read_bytes()
    assert written(tmp_path).read_bytes() == first


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path)
    original = path.read_bytes()
    for position in range(len(original)):
        damaged = bytearray(original)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(InputError):
            read_arrays(path, magic=MAGIC, kind="a test")


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x", lambda data: data[:20]])
def test_every_other_size_is_refused(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    path = written(tmp_path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError):
        read_arrays(path, magic=MAGIC, kind="a test")


@pytest.mark.parametrize("change", [b"", b"PK\x03\x04 is a zip", b"\x80\x04pickle.."])
def test_other_files_are_refused(tmp_path: Path, change: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(change)
    with pytest.raises(InputError, match="is not a test"):
        read_arrays(path, magic=MAGIC, kind="a test")


def test_a_file_that_shrinks_while_it_is_checked_is_read_as_it_was(tmp_path: Path) -> None:
    """A mapped file would end the process by SIGBUS here; what is checked must be what is used."""
    path = tmp_path / "large.arrays"
    write_arrays(path, magic=MAGIC, fields={}, arrays={"a": np.ones(1 << 17)})

    def shrink(_: Octets) -> None:
        os.truncate(path, 100)

    _, arrays = read_arrays(path, magic=MAGIC, kind="a test", check=shrink)
    assert arrays["a"].sum() == 1 << 17


def test_what_was_read_cannot_be_made_writeable(tmp_path: Path) -> None:
    _, arrays = read_arrays(written(tmp_path), magic=MAGIC, kind="a test")
    with pytest.raises(ValueError, match="WRITEABLE"):
        arrays["a"].flags.writeable = True


def test_reading_holds_one_copy_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "large.arrays"
    write_arrays(path, magic=MAGIC, fields={}, arrays={"a": np.ones(1 << 20)})
    tracemalloc.start()
    read_arrays(path, magic=MAGIC, kind="a test")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size <= peak < 1.1 * path.stat().st_size


def test_a_sparse_file_of_any_size_is_refused_unread(tmp_path: Path) -> None:
    path = written(tmp_path)
    os.truncate(path, 1 << 40)
    with pytest.raises(InputError, match="bytes, more than"):
        read_arrays(path, magic=MAGIC, kind="a test")
