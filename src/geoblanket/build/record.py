"""The record of a build: what went in, what came out of each zone, and how good it is proven to be."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geoblanket._arguments import checked
from geoblanket._display import Interval, counted, interval_text, share, short_repr
from geoblanket._files import atomic_output
from geoblanket._training import NOT_SAID, Training
from geoblanket.build.measures import Disclosure, Measured
from geoblanket.build.rows import RowsReport
from geoblanket.build.validation import as_json, read_dataclass
from geoblanket.errors import InputError
from geoblanket.mechanism.bundle.header import Clock
from geoblanket.mechanism.bundle.zones import zone_in_words
from geoblanket.mechanism.costs import Costs, weight_in_micro
from geoblanket.mechanism.problem import epsilon_in_micro

_FEW_OUTPUTS = 3


@dataclass(frozen=True)
class ZoneRecord:
    """What was built for one zone and regime."""

    zone: str
    """The zone's name in the bundle."""
    number: int
    """The zone's number among all zones."""
    regime: str
    rows: RowsReport
    """How many rows there are, and of which histories."""
    epsilon: float
    """ε per kilometre."""
    eta_km: float
    history_weights: tuple[float, ...]
    """What each earlier place counts in distances."""
    share: float
    """Of all training steps, the share in this zone and regime."""
    unit: str
    """Of all losses here."""
    loss: float
    """Expected loss in design: where vehicles move as in training."""
    lower_bound: float
    """No mechanism for these rows has a smaller one."""
    gap: float
    """(loss − lower bound) / loss."""
    loss_error: float
    """The largest standard error among the losses of places; 0 if all tasks were counted."""
    outputs_used: int
    """How many outputs carry more than a thousandth of the probability."""
    outcome: str
    """Why the search ended."""
    seconds: float
    """Wall-clock time of the whole task."""
    peak_memory_mb: float
    """Largest resident size of the process that did it, megabytes."""
    held_out: Measured | None
    """Loss on walks that were held out; None where there are none here."""
    context_free_loss: float | None
    """The least expected loss without context, to the same gap, in design; None if it was not compared."""
    context_free_bound: float | None
    """No mechanism without context has a smaller one."""
    context_free_held_out: Measured | None
    disclosure: Disclosure
    """What the zone discloses, in design."""
    notes: tuple[str, ...]
    """What a reader should know, in words."""

    @property
    def where(self) -> str:
        """Which mechanism it is, for messages."""
        return f"{zone_in_words(self.number).capitalize()}, regime '{self.regime}'"

    @property
    def epsilon_micro(self) -> int:
        """ε in millionths per kilometre, as the bundle has it."""
        return epsilon_in_micro(self.epsilon)

    @property
    def history_weights_micro(self) -> tuple[int, ...]:
        """What each earlier place counts in distances, in millionths, as the bundle has it."""
        return tuple(map(weight_in_micro, self.history_weights))


@dataclass(frozen=True)
class Totals:
    """The whole city: means over zones and regimes, weighted by the steps in them."""

    mechanisms: int
    rows: int
    loss: float
    """In design; weighted by `ZoneRecord.share`."""
    lower_bound: float
    gap: float
    """(loss − lower bound) / loss of these totals."""
    largest_gap: float
    """The largest gap of a zone and regime."""
    context_free_loss: float | None
    gain: float | None
    """1 − loss / loss without context, in design."""
    held_out: Measured | None
    context_free_held_out: Measured | None
    held_out_gain: float | None
    """1 − loss / loss without context, on walks that were held out."""
    held_out_gain_low: float | None
    held_out_gain_high: float | None
    """The 95 % confidence interval of that gain; vehicles count as independent."""
    deeper_share: float | None = None
    """The share of the probability in rows that look further back than t − 1; None in records of 0.2."""


@dataclass(frozen=True)
class BuildRecord:
    """The record of a build, as it is kept beside the bundle.

    Examples
    --------
    With the `record` in the example of `build_bundle`:

    >>> record.unit, record.interval_s
    ('km', 30.0)
    >>> sorted({zone.regime for zone in record.zones})
    ['all day', 'start']
    """

    bundle: str
    """The bundle's file name."""
    bundle_sha256: str
    bundle_bytes: int
    config: dict[str, Any]
    """Every parameter, by section."""
    inputs: dict[str, str]
    """What identifies each input: SHA-256 of files, identities of roads, places and zones; and of the motion model that
    the walks were drawn from (`model`), if they were not driven."""
    software: dict[str, str]
    """Versions."""
    loss: str
    """What is lost, in words."""
    unit: str
    interval_s: float
    """Seconds between the places of a history."""
    spacing_m: float
    """The smallest distance between two places, metres."""
    snapping_radius_m: float
    """How far a point of a road can lie from its place, metres."""
    places: int
    zones: tuple[ZoneRecord, ...]
    """In order of zones' names and regimes, as in the bundle."""
    totals: Totals
    seconds: float
    """Wall-clock time; if the build was interrupted and resumed, of all its legs together."""
    peak_memory_mb: float
    """Largest resident size of the main process, in any leg, megabytes."""
    training: dict[str, Any] = field(default_factory=NOT_SAID.as_json)
    """What the mechanisms were learned from, as the bundle says it; older records do not say it."""

    @property
    def blanket(self) -> str:
        """Which earlier places decide how a location is perturbed, in words."""
        context, longest = self.config["context"], max(len(zone.history_weights) for zone in self.zones)
        places = counted(longest, "place")
        if not longest:
            return "none: the present place alone decides"
        if context["context"] != "blanket":
            return f"fixed past of {places} (context {context['context']})"
        if context["predictor"] is not None:
            return f"predictor {context['predictor']}, at most {places}"
        if context["findings"] is not None:
            return f"for each group as found in {context['findings']}, at most {places}"
        return f"fixed past of {places}, as no predictor was given"

    @property
    def costs(self) -> Costs:
        """What a report costs the location that it protects, in millionths per kilometre."""
        return Costs.of(self.zones, Clock.start)

    @property
    def caution(self) -> str | None:
        """What to think of losses on walks that were drawn from a motion model; None if the walks were driven."""
        if "model" not in self.inputs:
            return None
        return (
            "All walks were drawn from a motion model, those held out too: they are synthetic. Real vehicles move less "
            "as the model says, so expect larger losses."
        )

    @property
    def summary(self) -> list[str]:
        """What a reader in a hurry should know of usefulness, in sentences."""
        totals, unit = self.totals, self.unit
        zones = len({zone.zone for zone in self.zones})
        lines = [
            f"{counted(totals.mechanisms, 'mechanism')} for {counted(zones, 'zone')} with "
            f"{counted(self.places, 'place')}. Each mechanism was verified in exact arithmetic.",
            f"Expected loss ({self.loss}): {totals.loss:#.4g} {unit}. No mechanism of the same rows has less than "
            f"{totals.lower_bound:#.4g} {unit}: the gap is {totals.gap:.2%} ({totals.largest_gap:.2%} in the worst "
            "zone).",
        ]
        if totals.held_out is not None:
            lines.append(f"On walks that were held out: {totals.held_out.in_words(unit)}.")
        if totals.gain is not None:
            lines.append(
                f"Looking at the past lowers the loss by {share(totals.gain)} in design, against the best without."
            )
        if totals.held_out_gain is not None:
            interval = Interval.of(totals.held_out_gain_low, totals.held_out_gain_high)
            sure = f" (95 % interval {interval_text(interval, '.1%')})" if interval is not None else ""
            lines.append(f"On walks that were held out, it lowers the loss by {share(totals.held_out_gain)}{sure}.")
        if self.caution is not None:
            lines.append(self.caution)
        if few := [zone for zone in self.zones if zone.outputs_used <= _FEW_OUTPUTS < zone.rows.places]:
            lines.append(
                f"{len(few):,} of {totals.mechanisms:,} mechanisms report at most {_FEW_OUTPUTS} different places with "
                "a probability worth mentioning: for this ε their zones are small, and reports say little beyond the "
                "zone."
            )
        return lines

    @property
    def zones_in_order(self) -> list[ZoneRecord]:
        """The zones by number and regime, as people read them."""
        return sorted(self.zones, key=lambda zone: (zone.number, zone.regime))

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values; "inf" stands for infinity."""
        result: dict[str, Any] = as_json(self)
        return result

    @classmethod
    def from_dict(cls, values: Any) -> BuildRecord:
        """Return the record that `as_dict` gave; raise ValueError if a key is missing, or a type wrong."""
        record = read_dataclass(cls, values)
        Training.parsed(record.training)
        return record

    def __repr__(self) -> str:
        return short_repr(
            self,
            self.bundle,
            counted(self.totals.mechanisms, "mechanism"),
            counted(self.places, "place"),
            f"loss {self.totals.loss:.4g} {self.unit}",
            f"built in {self.seconds:,.0f} s",
        )


def record_path(bundle: str | Path) -> Path:
    """Return where the record of a bundle lies: beside it."""
    return Path(f"{bundle}.build.json")


def write_record(record: BuildRecord, bundle: str | Path) -> Path:
    """Write the record of a bundle beside it, wholly or not at all, and return where."""
    path = record_path(bundle)
    with atomic_output(path) as temporary:
        temporary.write_text(json.dumps(record.as_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return path


@checked
def read_record(path: str | Path) -> BuildRecord:
    """Read the record of a build.

    Raises
    ------
    InputError
        If the file is not a record, or was changed so that it cannot be one.

    Examples
    --------
    >>> from geoblanket.build import read_record
    >>> read_record("city.bundle.build.json").config["privacy"]["epsilon"]
    2.0
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("no such file", path=path)
    try:
        return BuildRecord.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, OSError, RecursionError) as error:
        raise InputError(f"is not the record of a build ({error})", path=path, hint="Build again") from error
