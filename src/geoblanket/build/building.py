"""A build: from roads and walks to a bundle of verified mechanisms, and the record of how it was made."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrayfile import Arrays
from geoblanket._display import Progress, silent
from geoblanket._files import check_output, sha256_file
from geoblanket._frames import AnyFrame, takes_frames
from geoblanket._unfinished import Effort, PartStore, unfinished_path
from geoblanket._workers import count_workers, leave_ctrl_c_to, peak_memory_mb, run_tasks
from geoblanket.build.config import BuildConfig
from geoblanket.build.inputs import Inputs, ZoneTask, load_inputs, software_versions
from geoblanket.build.measures import VehicleLosses, measure, ratio_interval, vehicle_losses, zone_disclosure
from geoblanket.build.record import BuildRecord, Totals, ZoneRecord, write_record
from geoblanket.build.row_tree import Reach
from geoblanket.build.rows import NO_CONTEXT, Aim, Context, ZoneRows, make_problem, make_rows
from geoblanket.build.validation import as_json, read_dataclass
from geoblanket.loss.place_loss import KnownLoss, PlaceLoss
from geoblanket.mechanism.bundle.storage import BundledMechanism, next_version, save_bundle
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem
from geoblanket.mechanism.solver.optimiser import OptimiseResult, Outcome, optimise
from geoblanket.mobility.walks import write_walks

_SECONDS_PER_TASK = 10.0
"""What a zone takes, by estimate, to judge whether more processes pay."""

_PHASE = "zones and regimes"


@checked
@takes_frames(walks=write_walks)
def build_bundle(
    roads: str | Path,
    walks: str | Path | AnyFrame,
    out: str | Path,
    *,
    config: BuildConfig,
    workers: int | None = None,
    cluster: str | None = None,
    resume: bool = False,
    progress: Progress = silent,
) -> BuildRecord:
    """Build the mechanisms of all zones and regimes, verify them, and write them to one bundle.

    The same inputs and parameters give the same bytes for any number of workers, unless a search hits its time limit.
    Finished parts are kept in a folder beside the bundle until the build ends. A bundle that exists is replaced by one
    of the next version, unless `config` gives a greater one.

    Parameters
    ----------
    roads
        A road graph, from `geoblanket roads import`.
    walks
        Walks on these roads, from `geoblanket match`, or `Walks` of a data frame.
    out
        The bundle to write; its record goes beside it (`record_path`).
    config
        All parameters of the result.
    workers
        Number of processes; None for one per core.
    cluster
        Address of a Dask scheduler, to use its workers instead. They need geoblanket installed.
    resume
        Continue an interrupted build with the same `out`, inputs and parameters.
    progress
        Called as the work goes on.

    Raises
    ------
    InputError, MismatchError
        If files cannot be used or do not belong together, or the interrupted build was a different one.
    ParameterError
        If a parameter is out of range, or the version not greater than that of the bundle that is replaced.
    WorkerError
        If processes died during some tasks; finished tasks are kept.
    OutputError
        If something cannot be written.

    Examples
    --------
    >>> from geoblanket import BuildConfig, build_bundle
    >>> config = BuildConfig(epsilon=2.0, context="none", max_places=20, gap=0.1, max_tasks=50)
    >>> record = build_bundle("city.roads", "walks.parquet", "city.bundle", config=config, workers=1)
    >>> record.totals.gap <= 0.1
    True
    """
    started = time.perf_counter()
    check_output(out)
    version = next_version(out, config.version)
    inputs = load_inputs(roads, walks, config.model_copy(update={"version": version}), progress=progress)
    software = software_versions()
    tasks = {task.name: task for task in inputs.tasks()}
    about = _flat(config, inputs.identities, software)
    store = PartStore(
        unfinished_path(out),
        about,
        resume=resume,
        pack=_pack,
        unpack=_unpack,
        effort=lambda: Effort(time.perf_counter() - started, peak_memory_mb()),
    )
    try:
        _run(tasks, store, workers=workers, cluster=cluster, progress=progress)
    finally:
        store.close()
    results = [store.get(name) for name in tasks]
    results.sort(key=lambda result: (result.record.zone, result.record.regime))
    save_bundle(
        out,
        [result.bundled for result in results],
        version=version,
        snapping_radius_mm=int(inputs.snapping_radius_m * 1000) + 1,
        places_e7=inputs.metric or inputs.places.coordinates_e7,
        clock=inputs.clock,
        training=inputs.training,
    )
    record = _record(out, inputs, software, results, store.effort())
    write_record(record, out)
    store.remove()
    return record


def _flat(config: BuildConfig, identities: Mapping[str, str], software: Mapping[str, str]) -> dict[str, Any]:
    """Return all that a result depends on, by name."""
    parameters = {name: value for section in config.as_dict().values() for name, value in section.items()}
    return {**parameters, **{f"{name} (input)": value for name, value in identities.items()}, **software}


def _run(
    tasks: Mapping[str, ZoneTask],
    store: PartStore[ZoneResult],
    *,
    workers: int | None,
    cluster: str | None,
    progress: Progress,
) -> None:
    unfinished = {name: task for name, task in tasks.items() if not store.has(name)}
    total = sum(task.work for task in tasks.values())
    done = total - sum(task.work for task in unfinished.values())
    progress(_PHASE, done, total)
    if not unfinished:
        return
    processes = count_workers(workers, tasks=len(unfinished), seconds=len(unfinished) * _SECONDS_PER_TASK)
    for name, result in run_tasks(build_zone, unfinished, workers=processes, cluster=cluster):
        store.add(name, result)
        done += tasks[name].work
        progress(_PHASE, done, total)


@dataclass(frozen=True, eq=False)
class ZoneResult:
    """What was built, as arrays and numbers."""

    record: ZoneRecord
    bundled: BundledMechanism
    losses: VehicleLosses
    context_free: VehicleLosses


def build_zone(task: ZoneTask) -> ZoneResult:
    """Build one zone and regime: rows, problem, optimum, exact repair and verification, held-out losses."""
    leave_ctrl_c_to(task.process)
    started = time.perf_counter()
    config = task.config
    loss = _known_loss(task)
    rows = _rows(task, task.context, loss)
    plain = _rows(task, NO_CONTEXT, loss) if config.compare and task.context != NO_CONTEXT else None
    result = _optimised(_problem(rows, loss, config), config)
    losses = vehicle_losses(result.mechanism, rows, task.steps, loss)
    base, base_losses = result, losses
    if plain is not None:
        base = _optimised(_problem(plain, loss, config), config)
        base_losses = vehicle_losses(base.mechanism, plain, task.steps, loss)
    compared = config.compare
    record = ZoneRecord(
        zone=task.zone,
        number=task.number,
        regime=task.regime,
        rows=rows.report,
        epsilon=config.epsilon,
        eta_km=config.eta_km,
        history_weights=rows.history_weights,
        share=task.share,
        unit=task.loss.unit,
        loss=result.loss,
        lower_bound=result.lower_bound,
        gap=result.gap,
        loss_error=loss.largest_error,
        outputs_used=result.outputs_used,
        outcome=result.outcome.value,
        seconds=time.perf_counter() - started,
        peak_memory_mb=peak_memory_mb(),
        held_out=measure(losses),
        context_free_loss=base.loss if compared else None,
        context_free_bound=base.lower_bound if compared else None,
        context_free_held_out=measure(base_losses) if compared else None,
        disclosure=zone_disclosure(result.mechanism, rows, task.counts, task.zone_of),
        notes=_notes(rows, result, config),
    )
    bundled = BundledMechanism.of(
        result.mechanism,
        zone=task.zone,
        regime=task.regime,
        history_weights=rows.history_weights,
        histories=rows.histories,
        output_places=rows.zone,
    )
    return ZoneResult(record, bundled, losses, base_losses if compared else VehicleLosses.joined([]))


def _rows(task: ZoneTask, context: Context, loss: PlaceLoss) -> ZoneRows:
    config = task.config
    rows = make_rows(
        task.places,
        task.members,
        task.counts,
        reach_m=task.reach_m,
        context=task.lengths if context.kind == "blanket" else context,
        history_weights=config.history_weights,
        max_rows=config.max_rows,
        aim=Aim(loss, config.epsilon, config.eta_km),
    )
    return rows if task.metric is None else rows.measured(task.metric)


def _known_loss(task: ZoneTask) -> KnownLoss:
    reach = Reach(task.places.coordinates_e7, task.reach_m)
    within = [reach.of(place) for place in task.members.tolist()]
    return KnownLoss.of(
        task.loss, np.concatenate([*within, task.counts.next_place, task.steps.next_place]), task.members
    )


def _problem(rows: ZoneRows, loss: PlaceLoss, config: BuildConfig) -> Problem:
    return make_problem(rows, loss, epsilon=config.epsilon, eta_km=config.eta_km)


def _optimised(problem: Problem, config: BuildConfig) -> OptimiseResult:
    result = optimise(problem, gap=config.gap, time_limit_s=config.time_limit_s)
    if result.outcome is Outcome.INTERRUPTED:
        # The result is not within the gap that was asked for, so it must not count as finished.
        raise KeyboardInterrupt
    return result


def _notes(rows: ZoneRows, result: OptimiseResult, config: BuildConfig) -> tuple[str, ...]:
    notes = []
    if rows.report.steps == 0:
        notes.append("no data: no training walk was here, so all places count as equally probable")
    if result.gap > config.gap:
        notes.append(f"the gap of {config.gap:g} was not reached ({result.outcome.value})")
    if result.outputs_used == 1 and len(rows.zone) > 1:
        notes.append("one output is as good as any: reports say little more than the zone")
    return tuple(notes)


def _record(
    out: str | Path, inputs: Inputs, software: dict[str, str], results: Sequence[ZoneResult], effort: Effort
) -> BuildRecord:
    return BuildRecord(
        bundle=Path(out).name,
        bundle_sha256=sha256_file(out),
        bundle_bytes=Path(out).stat().st_size,
        config=inputs.config.as_dict(),
        inputs=inputs.identities,
        software=software,
        loss=inputs.loss.name,
        unit=inputs.loss.unit,
        interval_s=inputs.clock.interval_s,
        spacing_m=inputs.places.spacing_m,
        snapping_radius_m=inputs.snapping_radius_m,
        places=len(inputs.places),
        zones=tuple(result.record for result in results),
        totals=_totals(results, compare=inputs.config.compare),
        seconds=effort.seconds,
        peak_memory_mb=effort.peak_memory_mb,
        training=inputs.training.as_json(),
    )


def _totals(results: Sequence[ZoneResult], *, compare: bool) -> Totals:
    zones = [result.record for result in results]
    loss, bound = _mean(zones, "loss"), _mean(zones, "lower_bound")
    losses = VehicleLosses.joined([result.losses for result in results])
    plain_loss = _mean(zones, "context_free_loss") if compare else None
    plain = VehicleLosses.joined([result.context_free for result in results])
    gain = low = high = None
    if compare and plain.loss.any():
        ratio, least, most = ratio_interval(losses.loss, plain.loss)
        gain, low, high = 1 - ratio, 1 - most, 1 - least
    return Totals(
        mechanisms=len(zones),
        rows=sum(zone.rows.rows for zone in zones),
        loss=loss,
        lower_bound=bound,
        gap=(loss - bound) / loss if loss > 0 else 0.0,
        largest_gap=max(zone.gap for zone in zones),
        context_free_loss=plain_loss,
        gain=1 - loss / plain_loss if plain_loss else None,
        held_out=measure(losses),
        context_free_held_out=measure(plain) if compare else None,
        held_out_gain=gain,
        held_out_gain_low=low,
        held_out_gain_high=high,
        deeper_share=sum(zone.share * zone.rows.deeper_share for zone in zones),
    )


def _mean(zones: Sequence[ZoneRecord], name: str) -> float:
    """Return the mean of a figure over zones and regimes, weighted by the steps in them (alike if there are none)."""
    weight = sum(zone.share for zone in zones)
    if not weight:
        return float(sum(getattr(zone, name) for zone in zones) / len(zones))
    return float(sum(zone.share * getattr(zone, name) for zone in zones) / weight)


def _pack(result: ZoneResult) -> tuple[dict[str, Any], Arrays]:
    """Return a result as JSON values and arrays."""
    bundled = result.bundled
    numbers = {
        "output_count": bundled.output_count,
        "epsilon_micro": bundled.mechanism.epsilon_micro,
        "eta_mm": bundled.mechanism.eta_mm,
        "unit": bundled.mechanism.unit,
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


def _unpack(fields: dict[str, Any], arrays: Arrays) -> ZoneResult:
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
                unit=numbers["unit"],
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
