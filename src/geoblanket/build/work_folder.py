"""The folder of an unfinished build: one file for each finished zone and regime, so that an interruption loses nothing.

Each file is written wholly or not at all, in the strict container of all our files. A damaged one is built again; the
others are verified again on their way into the bundle.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from geoblanket._arrayfile import read_arrays, write_arrays
from geoblanket._unfinished import open_folder
from geoblanket.build.held_out import VehicleLosses
from geoblanket.build.record import ZoneRecord
from geoblanket.build.typed_values import as_json, read_dataclass
from geoblanket.build.zone_task import ZoneResult, ZoneTask
from geoblanket.errors import GeoblanketError
from geoblanket.mechanism.bundle.storage import BundledMechanism
from geoblanket.mechanism.mechanism import Mechanism

__all__ = ["WorkFolder", "work_folder_path"]

_MAGIC = b"GBZONES1"
_PARTS = "*.zone"


def work_folder_path(out: str | Path) -> Path:
    """Return where the folder of an unfinished build lies: beside its bundle."""
    out = Path(out)
    return out.with_name(f"{out.name}.unfinished")


class WorkFolder:
    """What a build has finished so far.

    Parameters
    ----------
    path, about, resume
        See `open_folder`, which raises MismatchError and OutputError.
    """

    def __init__(self, path: Path, about: Mapping[str, Any], *, resume: bool) -> None:
        self.path = path
        open_folder(path, about, parts=_PARTS, resume=resume)

    def add(self, task: ZoneTask, result: ZoneResult) -> None:
        """Keep a result: it survives the end of this process, however sudden."""
        bundled = result.bundled
        arrays = {
            "weights": bundled.mechanism.weights,
            "distance_mm": bundled.mechanism.distance_mm,
            "outputs": bundled.outputs,
            "histories": bundled.histories,
            "history_rows": bundled.history_rows,
            "output_places": bundled.output_places,
            **_losses("held_out", result.losses),
            **_losses("context_free", result.context_free),
        }
        numbers = {
            "output_count": bundled.output_count,
            "epsilon_micro": bundled.mechanism.epsilon_micro,
            "eta_mm": bundled.mechanism.eta_mm,
            "history_weights_micro": list(bundled.history_weights_micro),
        }
        write_arrays(
            self._file(task),
            magic=_MAGIC,
            fields={"record": as_json(result.record), "numbers": numbers},
            arrays=arrays,
            private=True,
        )

    def has(self, task: ZoneTask) -> bool:
        """Whether a result is kept, and whole."""
        try:
            self._read(task)
        except GeoblanketError:
            return False
        return True

    def get(self, task: ZoneTask) -> ZoneResult:
        """Return a result that is kept; its mechanism is verified again."""
        values, arrays = self._read(task)
        numbers = values["numbers"]
        return ZoneResult(
            record=read_dataclass(ZoneRecord, values["record"]),
            bundled=BundledMechanism(
                zone=task.zone,
                regime=task.regime,
                mechanism=Mechanism.verified(
                    arrays["weights"],
                    distance_mm=arrays["distance_mm"],
                    epsilon_micro=numbers["epsilon_micro"],
                    eta_mm=numbers["eta_mm"],
                ),
                outputs=arrays["outputs"],
                output_count=numbers["output_count"],
                history_weights_micro=tuple(numbers["history_weights_micro"]),
                histories=arrays["histories"],
                history_rows=arrays["history_rows"],
                output_places=arrays["output_places"],
            ),
            losses=_read_losses("held_out", arrays),
            context_free=_read_losses("context_free", arrays),
        )

    def close(self) -> None:
        """Remove the folder if nothing was finished."""
        if not self._parts():
            self.remove()

    def remove(self) -> None:
        """Remove the folder, once the bundle is written."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _parts(self) -> list[Path]:
        return sorted(self.path.glob(_PARTS))

    def _file(self, task: ZoneTask) -> Path:
        # Regimes have names that files may not have.
        return self.path / f"{task.number:05d}-{task.regime.encode().hex()}.zone"

    def _read(self, task: ZoneTask) -> tuple[dict[str, Any], dict[str, Any]]:
        return read_arrays(self._file(task), magic=_MAGIC, kind="a finished zone", hint="It is built again")


def _losses(name: str, losses: VehicleLosses) -> dict[str, Any]:
    return {f"{name}_{field.name}": getattr(losses, field.name) for field in fields(losses)}


def _read_losses(name: str, arrays: Mapping[str, Any]) -> VehicleLosses:
    return VehicleLosses(**{field.name: arrays[f"{name}_{field.name}"] for field in fields(VehicleLosses)})
