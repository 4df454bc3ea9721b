"""What a run has finished so far: one file for each zone and setting, so that nothing is lost."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from geoblanket._arrayfile import read_arrays, write_arrays
from geoblanket._unfinished import open_folder
from geoblanket.build.held_out import VehicleLosses
from geoblanket.build.typed_values import as_json, read_dataclass
from geoblanket.errors import GeoblanketError
from geoblanket.evaluate.comparing import MethodOutcome, ZoneOutcome
from geoblanket.evaluate.measures.values import HeldOut, Value

__all__ = ["OutcomeStore"]

_MAGIC = b"GBEVALU1"
_ENDING = ".outcome"
_PLAIN = ("zone", "share", "unit", "spacing_m", "interval_s")


class OutcomeStore:
    """A folder of outcomes.

    Parameters
    ----------
    path
        The folder.
    about
        Experiments, inputs and versions, as JSON values.
    resume
        Go on with what the folder holds; it may be absent. Otherwise it must not hold anything.

    Raises
    ------
    MismatchError
        If the folder belongs to a run with other experiments or inputs.
    OutputError
        If it holds something and `resume` is false, or it cannot be written.
    """

    def __init__(self, path: Path, about: Mapping[str, Any], *, resume: bool) -> None:
        self.path = path
        open_folder(path, about, parts=f"*{_ENDING}", resume=resume)

    def add(self, name: str, outcome: ZoneOutcome) -> None:
        """Keep an outcome: it survives the end of this process, however sudden."""
        arrays: dict[str, Any] = {}
        methods = []
        for number, method in enumerate(outcome.methods):
            parts = []
            for index, (what, losses) in enumerate(method.held_out.items()):
                parts.append(as_json(what))
                for field in fields(losses):
                    arrays[f"{number}/{index}/{field.name}"] = getattr(losses, field.name)
            values = as_json([{**value.columns, "part": value.part} for value in method.values])
            methods.append({"method": method.method, "note": method.note, "values": values, "held_out": parts})
        plain = {key: getattr(outcome, key) for key in _PLAIN}
        write_arrays(self._file(name), magic=_MAGIC, fields={**plain, "methods": methods}, arrays=arrays, private=True)

    def get(self, name: str) -> ZoneOutcome | None:
        """Return an outcome that is kept, and whole; None for one that is not."""
        try:
            stored, arrays = read_arrays(self._file(name), magic=_MAGIC, kind="a finished comparison")
        except GeoblanketError:
            return None
        methods = tuple(_method(number, method, arrays) for number, method in enumerate(stored["methods"]))
        return ZoneOutcome(**{key: stored[key] for key in _PLAIN}, methods=methods)

    def remove(self) -> None:
        """Remove the folder, once the results are written."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _file(self, name: str) -> Path:
        return self.path / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}{_ENDING}"


def _method(number: int, stored: Mapping[str, Any], arrays: Mapping[str, Any]) -> MethodOutcome:
    held_out = {
        read_dataclass(HeldOut, what): VehicleLosses(
            **{field.name: arrays[f"{number}/{index}/{field.name}"] for field in fields(VehicleLosses)}
        )
        for index, what in enumerate(stored["held_out"])
    }
    values = tuple(map(Value.of, stored["values"]))
    return MethodOutcome(stored["method"], values, held_out, stored["note"])
