from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from geoblanket._display import Interval
from geoblanket._unfinished import PartStore
from geoblanket.build.measures import VehicleLosses
from geoblanket.errors import MismatchError, OutputError
from geoblanket.lab.evaluate.comparing import MethodOutcome, ZoneOutcome
from geoblanket.lab.evaluate.measures import HeldOut, Value
from geoblanket.lab.evaluate.results import pack_outcome, unpack_outcome


def open_store(path: Path, about: dict[str, object], *, resume: bool) -> PartStore[ZoneOutcome]:
    return PartStore(path, about, resume=resume, pack=pack_outcome, unpack=unpack_outcome)


def outcome() -> ZoneOutcome:
    losses = VehicleLosses(np.array([1, 4], np.int32), np.array([2.0, 3.0]), np.array([0.5, 0.25]))
    made = MethodOutcome(
        "lp",
        (
            Value("design_loss", 0.1, "km", Interval(0.05, 0.2)),
            Value("composed_epsilon", math.inf, "per km", part="T = 2"),
        ),
        {HeldOut("held_out_loss", "km"): losses, HeldOut("held_out_loss", "km", "T = 2"): losses},
        "",
    )
    missing = MethodOutcome("tight", (Value("verified", 0.0, ""),), {}, "does not exist")
    return ZoneOutcome(3, 0.25, "km", 250.0, 30.0, (made, missing))


def test_what_is_kept_comes_back_as_it_was(tmp_path: Path) -> None:
    store = open_store(tmp_path / "kept", {"a": 1}, resume=False)
    store.add("one", outcome())
    found, wanted = open_store(tmp_path / "kept", {"a": 1}, resume=True).get("one"), outcome()
    assert (found.zone, found.share, found.unit, found.spacing_m) == (3, 0.25, "km", 250.0)
    for one, other in zip(found.methods, wanted.methods, strict=True):
        assert (one.method, one.values, one.note) == (other.method, other.values, other.note)
        assert list(one.held_out) == list(other.held_out)
        for what, losses in other.held_out.items():
            assert np.array_equal(one.held_out[what].vehicle, losses.vehicle)
            assert np.array_equal(one.held_out[what].steps, losses.steps)
            assert np.array_equal(one.held_out[what].loss, losses.loss)


def test_what_is_damaged_or_absent_is_done_again(tmp_path: Path) -> None:
    store = open_store(tmp_path / "kept", {}, resume=False)
    assert not store.has("one")
    store.add("one", outcome())
    (file,) = (tmp_path / "kept").glob("*.part")
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    assert not store.has("one")


def test_another_run_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path / "kept", {"gap": 0.1}, resume=False).add("one", outcome())
    with pytest.raises(OutputError, match="--resume"):
        open_store(tmp_path / "kept", {"gap": 0.1}, resume=False)
    with pytest.raises(MismatchError, match="another gap"):
        open_store(tmp_path / "kept", {"gap": 0.2}, resume=True)
