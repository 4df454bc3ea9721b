"""Results of zones and regimes as arrays and JSON values, for the store of an unfinished build."""

from __future__ import annotations

from typing import Any

from geoblanket._arrayfile import Arrays
from geoblanket.build.held_out import VehicleLosses
from geoblanket.build.record import ZoneRecord
from geoblanket.build.typed_values import as_json, read_dataclass
from geoblanket.build.zone_task import ZoneResult
from geoblanket.mechanism.bundle.storage import BundledMechanism
from geoblanket.mechanism.mechanism import Mechanism

__all__ = ["pack_result", "unpack_result"]


def pack_result(result: ZoneResult) -> tuple[dict[str, Any], Arrays]:
    """Return a result as JSON values and arrays."""
    bundled = result.bundled
    numbers = {
        "output_count": bundled.output_count,
        "epsilon_micro": bundled.mechanism.epsilon_micro,
        "eta_mm": bundled.mechanism.eta_mm,
        "history_weights_micro": list(bundled.history_weights_micro),
    }
    arrays = {
        "weights": bundled.mechanism.weights,
        "distance_mm": bundled.mechanism.distance_mm,
        "outputs": bundled.outputs,
        "histories": bundled.histories,
        "history_rows": bundled.history_rows,
        "output_places": bundled.output_places,
        **result.losses.as_arrays("held_out/"),
        **result.context_free.as_arrays("context_free/"),
    }
    return {"record": as_json(result.record), "numbers": numbers}, arrays


def unpack_result(fields: dict[str, Any], arrays: Arrays) -> ZoneResult:
    """Return the result again; its mechanism is verified again."""
    numbers = fields["numbers"]
    record = read_dataclass(ZoneRecord, fields["record"])
    return ZoneResult(
        record=record,
        bundled=BundledMechanism(
            zone=record.zone,
            regime=record.regime,
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
        losses=VehicleLosses.from_arrays(arrays, "held_out/"),
        context_free=VehicleLosses.from_arrays(arrays, "context_free/"),
    )
