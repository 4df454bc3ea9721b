"""Run experiments in cities: from files to results, on all cores, resumable."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl

from geoblanket._arguments import checked
from geoblanket._arrays import Indices, Ints
from geoblanket._display import Progress, counted, short_repr, silent
from geoblanket._files import make_folder, sha256_file
from geoblanket._unfinished import PartStore
from geoblanket._workers import count_workers, leave_ctrl_c_to, run_tasks
from geoblanket.build.inputs import software_versions
from geoblanket.build.measures import VehicleLosses, measure
from geoblanket.build.validation import as_json
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.lab.evaluate.city_data import CityData, CityFiles
from geoblanket.lab.evaluate.comparing import ComparisonTask, MethodOutcome, ZoneOutcome, compare_zone
from geoblanket.lab.evaluate.experiment import Experiment, Setting, joined
from geoblanket.lab.evaluate.measures import TRACKING, HeldOut, Measure, by_reports
from geoblanket.lab.evaluate.methods import METHODS, OwnMaker, is_own
from geoblanket.lab.evaluate.results import (
    ALL_ZONES,
    WHOLE_CITY,
    pack_outcome,
    read_results,
    tabulate,
    unpack_outcome,
    write_results,
)
from geoblanket.lab.evaluate.sanity import Violation, check_results
from geoblanket.lab.evaluate.tracking import RowObservation, WalkTracker, ZoneReports, only_the_zone
from geoblanket.mechanism.bundle.zones import zone_in_words
from geoblanket.mobility.walks import scan_walks
from geoblanket.tracking.filtering import NO_REPORT


@dataclass(frozen=True, eq=False)
class TrackingTask:
    """Track held-out vehicles by the reports of one method in one setting."""

    tracker: WalkTracker
    zone_of: Indices
    """The number of the zone of each place."""
    zones: tuple[ZoneOutcome, ...]
    """Reports of the methods in the compared zones. In other zones only the zone is known."""
    setting: Setting
    method: str | None
    """The method that reports; None: there are no reports, and only zones are known."""
    reports: tuple[int, ...]
    """Numbers of reports in a row that an attacker sees in hindsight, the usual number first."""
    process: int
    """Id of the process that started the task."""


def track_city(task: TrackingTask) -> ZoneOutcome:
    """Track held-out vehicles by the reports of a method; without outcome if a zone has no mechanism."""
    leave_ctrl_c_to(task.process)
    outcome = _City(task).outcome()
    first = task.zones[0]
    return ZoneOutcome(
        zone=WHOLE_CITY if task.setting.city_wide else ALL_ZONES,
        share=1.0,
        unit=first.unit,
        spacing_m=first.spacing_m,
        interval_s=first.interval_s,
        methods=() if outcome is None else (outcome,),
    )


class _City:
    def __init__(self, task: TrackingTask) -> None:
        self.task = task
        zone = task.zone_of[task.tracker.steps.histories[:, 0]]
        judged = np.isin(zone, [outcome.zone for outcome in task.zones])
        self.tracker = task.tracker if judged.all() else replace(task.tracker, judged=judged)
        self._positions = {int(number): np.flatnonzero(zone == number) for number in np.unique(task.zone_of)}

    def outcome(self) -> MethodOutcome | None:
        if self.task.method is None:
            observation, outputs = self._reports({})
            blind = {HeldOut(Measure.TRACKED_ERROR_PRIOR, "km"): self.tracker.tracked(observation, outputs).error_km}
            return MethodOutcome("", (), {**blind, **dict(self._in_hindsight({}, blind=True))}, "")
        parts = {
            outcome.zone: part.reports
            for outcome in self.task.zones
            for part in outcome.methods
            if part.method == self.task.method and part.reports is not None
        }
        if len(parts) < len(self.task.zones):
            return None
        held_out = {**dict(self._tracked(parts)), **dict(self._in_hindsight(parts))}
        return MethodOutcome(self.task.method, (), held_out, "")

    def _tracked(self, parts: dict[int, ZoneReports]) -> Iterator[tuple[HeldOut, VehicleLosses]]:
        observation, outputs = self._reports(parts)
        so_far = self.tracker.tracked(observation, outputs)
        yield HeldOut(Measure.TRACKED_ERROR, "km"), so_far.error_km
        yield HeldOut(Measure.TRACKED_SUCCESS, ""), so_far.success
        if so_far.loss is not None:
            yield HeldOut(Measure.TRACKED_LOSS, self.task.zones[0].unit), so_far.loss
        yield HeldOut(Measure.SINGLE_ERROR, "km"), self.tracker.single(observation, outputs).error_km

    def _in_hindsight(
        self, parts: dict[int, ZoneReports], *, blind: bool = False
    ) -> Iterator[tuple[HeldOut, VehicleLosses]]:
        observation, outputs = self._reports(parts)
        for count, part in by_reports(self.task.reports):
            attacker = self.tracker.in_hindsight(observation, outputs, steps=count * self.task.setting.every)
            yield HeldOut(TRACKING.blind_error if blind else TRACKING.error, "km", part), attacker.error_km
            yield HeldOut(TRACKING.blind_success if blind else TRACKING.success, "", part), attacker.success

    def _reports(self, parts: dict[int, ZoneReports]) -> tuple[RowObservation, Ints]:
        """Return the observation model and the report of each step; in other zones, steps report only the zone."""
        motion = self.tracker.motion
        zones = [
            parts[number] if number in parts else only_the_zone(self._members(number), len(where), motion)
            for number, where in self._positions.items()
        ]
        observation = RowObservation(motion, zones)
        outputs = np.empty(len(self.tracker.steps), np.int64)
        for first, zone, where in zip(observation.first, zones, self._positions.values(), strict=True):
            outputs[where] = first + zone.sent
        outputs[self.tracker.number_in_walk % self.task.setting.every > 0] = NO_REPORT
        return observation, outputs

    def _members(self, number: int) -> Indices:
        return np.flatnonzero(self.task.zone_of == number).astype(np.int32)


_Task = TypeVar("_Task")

_SECONDS_PER_TASK = 10.0
_SECONDS_PER_MOVE = 2e-9
"""Tracking takes this long for each step and each move of the motion model."""
_LONG_S = 60.0
"""Users are warned of tracking that takes longer."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Results of a run."""

    results: pl.DataFrame
    """`RESULTS_SCHEMA`."""
    notes: tuple[str, ...]
    """Remarks: about drawn steps, or about single methods, for example why there is no mechanism."""
    violations: tuple[Violation, ...]
    """Violated checks; see `sanity`."""

    def __repr__(self) -> str:
        about = counted(len(self.notes), "note"), counted(len(self.violations), "violation")
        return short_repr(self, counted(self.results.height, "result"), *about)


def unfinished_folder(out: str | Path) -> Path:
    """Return the folder of a run's finished tasks, which goes once all are finished."""
    return Path(out) / "unfinished"


@checked
def evaluate_cities(
    cities: Sequence[CityFiles],
    experiments: Sequence[Experiment],
    out: str | Path,
    *,
    workers: int | None = None,
    resume: bool = False,
    tracking: bool = True,
    progress: Progress = silent,
    tell: Callable[[str], None] = lambda _: None,
) -> Evaluation:
    """Run experiments in cities and write `results.parquet` and `results.csv`, after each of them.

    The same inputs give the same results, except times and memory, for any number of workers, as long as no search
    reaches its time limit.

    Parameters
    ----------
    out
        The folder for the results; made if it is absent.
    workers
        Number of processes; None: one for each core.
    resume
        Go on with an interrupted run of the same experiments with the same inputs. A finished one is read.
    tracking
        Track vehicles through the whole city, which often takes longest. Without it, there are no tracked errors.
    progress
        Called as the work goes on.
    tell
        Called with a line: a warning before long tracking, and the loss of each method as soon as it is known.

    Raises
    ------
    InputError, MismatchError
        If files cannot be used or do not belong together, or the interrupted run is not the one to resume.
    WorkerError
        If processes died at some tasks; finished tasks are kept.
    OutputError
        If something cannot be written.
    """
    out = make_folder(out)
    if not cities or not experiments:
        raise ParameterError("There must be one city or more, and one experiment or more.")
    own = {method: OwnMaker.named(method) for method in _own_methods(experiments)}
    for maker in own.values():
        maker.try_out()  # so that a faulty method is reported before the work begins
    about = _about(cities, experiments, own)
    if resume and (finished := _finished(out, {**about, "tracking": tracking})) is not None:
        return finished
    store = PartStore(unfinished_folder(out), about, resume=resume, pack=pack_outcome, unpack=unpack_outcome)
    tables: list[pl.DataFrame] = []
    notes: list[str] = []
    for experiment in experiments:
        plans = [_Plan(files, experiment, store, progress, tracking=tracking) for files in cities]
        if tracking:
            for line in filter(None, (plan.tracking_warning() for plan in plans)):
                tell(line)
        plan_of = {name: plan for plan in plans for name in plan.tasks}
        tasks = {name: task for plan in plans for name, task in plan.tasks.items()}
        for name in _run(compare_zone, tasks, store, workers, partial(progress, f"experiment {experiment.name}")):
            for line in plan_of[name].losses(name):
                tell(line)
        if tracking:
            tracked = {name: task for plan in plans for name, task in plan.tracking_tasks()}
            for _ in _run(track_city, tracked, store, workers, partial(progress, "tracking vehicles")):
                pass
        for plan in plans:
            tables.append(plan.table())
            notes += plan.notes()
        # After each experiment, so that first results can be read while others run.
        evaluation = _written(pl.concat(tables), notes, out, {**about, "tracking": tracking})
    store.remove()
    return evaluation


def _finished(out: Path, about: Mapping[str, Any]) -> Evaluation | None:
    """Return the results of a run that ended; None if there are none."""
    if unfinished_folder(out).exists() or not (out / "results.parquet").exists():
        return None
    results, made = read_results(out)
    if any(made.get(key) != value for key, value in about.items()):
        raise MismatchError(
            f"{out}: has results of other inputs, experiments or versions, which cannot be resumed. Give another "
            "folder, or --overwrite in place of --resume."
        )
    violations = tuple(Violation(**violation) for violation in made["violations"])
    return Evaluation(results, tuple(made["notes"]), violations)


def _written(results: pl.DataFrame, notes: Sequence[str], out: Path, about: Mapping[str, Any]) -> Evaluation:
    violations = check_results(results)
    remarks = {"notes": list(notes), "violations": [asdict(violation) for violation in violations]}
    write_results(results, out, about={**about, **remarks})
    return Evaluation(results, tuple(notes), violations)


def _own_methods(experiments: Sequence[Experiment]) -> list[str]:
    settings = (setting for experiment in experiments for setting in experiment.settings)
    return sorted({method for setting in settings for method in setting.methods if is_own(method)})


def _about(
    cities: Sequence[CityFiles], experiments: Sequence[Experiment], own: Mapping[str, OwnMaker]
) -> dict[str, Any]:
    def identity(files: CityFiles) -> dict[str, Any]:
        paths = {name: value for name, value in vars(files).items() if isinstance(value, Path)}
        paths |= {f"raw {path.name}": path for path in files.raw}
        for path in paths.values():
            if not path.is_file():
                raise InputError("no such file", path=path)
        return {"time_zone": files.time_zone, **{name: sha256_file(path) for name, path in paths.items()}}

    return {
        "cities": {files.name: identity(files) for files in cities},
        "experiments": {experiment.name: experiment.as_json() for experiment in experiments},
        "own_methods": {method: sha256_file(maker.file) for method, maker in own.items()},
        "software": software_versions(),
    }


def _grouped(settings: Sequence[Setting]) -> Iterator[tuple[Setting, tuple[str, ...]]]:
    """Yield the methods of each task: those with a past, which may share rows and then a mechanism, and the others."""
    for setting in settings:
        for past in (True, False):
            if group := tuple(method for method in setting.methods if METHODS[method].uses_past is past):
                yield setting, group


def _named(setting: Setting) -> str:
    """Return a unique name of a setting; a repr may leave something out."""
    return json.dumps(as_json(dict(setting)))


class _Plan:
    """The tasks of an experiment in a city: zones first, with tasks of one zone in a row; then tracking."""

    def __init__(
        self,
        files: CityFiles,
        experiment: Experiment,
        store: PartStore[ZoneOutcome],
        progress: Progress,
        *,
        tracking: bool,
    ) -> None:
        self._files, self._experiment, self._store, self._tracking = files, experiment, store, tracking
        self._city_of: dict[Setting, CityData] = {}
        self.tasks = {task.name: task for task in self._zone_tasks(progress)}

    def _zone_tasks(self, progress: Progress) -> Iterator[ComparisonTask]:
        files, experiment = self._files, self._experiment
        groups: dict[tuple[Any, ...], list[Setting]] = {}
        for setting in experiment.settings:
            size = WHOLE_CITY if setting.city_wide else setting.max_places
            key = (setting.spacing_m, setting.interval_s, setting.delay, size, setting.loss_case)
            groups.setdefault(key, []).append(setting)
        loaded: dict[tuple[Any, ...], CityData] = {}
        for (spacing_m, interval_s, delay, max_places, loss_case), settings in groups.items():
            # Walks for other spacings and intervals are written to the store's folder.
            walks = _walks(files, self._store.path, spacing_m=spacing_m, interval_s=interval_s, progress=progress)
            if (walks, delay) not in loaded:
                loaded[walks, delay] = CityData(
                    _with_walks(files, walks),
                    delay=delay,
                    destinations=experiment.destinations,
                    max_tasks=experiment.max_tasks,
                    max_steps=experiment.max_steps,
                    seed=experiment.seed,
                    progress=progress,
                )
            city = loaded[walks, delay]
            self._city_of |= dict.fromkeys(settings, city)
            zones = city.whole_city() if max_places == WHOLE_CITY else city.zones(max_places)
            chosen_zones = city.chosen_zones(zones, experiment.zones)
            for data in city.zone_data(zones, chosen_zones, loss_case, tracking=self._tracking):
                for setting, chosen in _grouped(settings):
                    name = f"{self._where(data.number)}, {', '.join(chosen)}, {_named(setting)}"
                    if not self._tracking and not self._store.has(name):
                        name += ", not tracked"  # without the reports that tracking needs, if a later run resumes
                    yield ComparisonTask(
                        name=name,
                        data=data,
                        setting=setting,
                        methods=chosen,
                        experiment=experiment,
                        process=os.getpid(),
                    )

    def tracking_tasks(self) -> Iterator[tuple[str, TrackingTask]]:
        """Yield the tracking tasks by name, once the zones are finished."""
        for setting, city in self._city_of.items():
            task = TrackingTask(
                tracker=city.tracker(setting.loss_case),
                zone_of=next(task.data.zone_of for task in self.tasks.values() if task.setting == setting),
                zones=tuple(self._outcomes(setting)),
                setting=setting,
                method=None,
                reports=self._experiment.reports,
                process=os.getpid(),
            )
            for method in (None, *setting.methods):
                yield self._tracking_name(setting, method), replace(task, method=method)

    def tracking_warning(self) -> str | None:
        """Return a warning if tracking will take minutes; it takes time for each step and each move of the model."""
        seconds = sum(
            _SECONDS_PER_MOVE * len(city.motion.targets) * len(city.steps) * (1 + len(setting.methods))
            for setting, city in self._city_of.items()
        )
        if seconds <= _LONG_S:
            return None
        return (
            f"{self._files.name}: tracking will take about {seconds / 60:,.0f} min of one processor's time. "
            "Leave it out with --set tracking=false."
        )

    def losses(self, name: str) -> Iterator[str]:
        """Yield the losses of a finished task's methods, over the zones so far: 1, 2, 4, 8, ... and all of them."""
        task = self.tasks[name]
        same = [
            name for name, other in self.tasks.items() if (other.setting, other.methods) == (task.setting, task.methods)
        ]
        finished = [name for name in same if self._store.has(name)]
        whole = len(finished) == len(same)
        if not whole and len(finished).bit_count() > 1:
            return
        zones = [self._store.get(name) for name in finished]
        so_far = "" if whole else f", {len(finished)} of {len(same)} zones"
        for method in zones[0].methods:
            parts = [part for zone in zones for part in zone.methods if part.method == method.method]
            what = HeldOut(Measure.HELD_OUT_LOSS, zones[0].unit)
            found = measure(VehicleLosses.joined([part.held_out[what] for part in parts if what in part.held_out]))
            if found is not None and all(part.verified for part in parts):
                yield (
                    f"{self._files.name}, {joined(self._experiment.name, task.setting.described)}, "
                    f"ε = {task.setting.epsilon:g}, {METHODS[method.method].label}: loss {found.loss:.4f} "
                    f"{zones[0].unit} on held-out walks{so_far}"
                )

    def table(self) -> pl.DataFrame:
        """Return the results, once all is finished."""
        return tabulate(
            self._experiment.name,
            self._files.name,
            {setting: self._outcomes(setting) for setting in self._experiment.settings},
            {setting: self._tracked(setting) for setting in self._experiment.settings} if self._tracking else {},
        )

    def notes(self) -> list[str]:
        """Return remarks about the judging and about single methods."""
        drawn = dict.fromkeys(
            f"{self._files.name}, experiment '{self._experiment.name}': judged by {len(city.steps):,} steps, drawn "
            f"from the {city.held_out_steps:,} of held-out vehicles"
            for city in self._city_of.values()
            if len(city.steps) < city.held_out_steps
        )
        return list(drawn) + [
            f"{self._where(task.data.number)}, ε = {task.setting.epsilon:g}, {method.method}: {method.note}"
            for name, task in self.tasks.items()
            for method in self._store.get(name).methods
            if method.note
        ]

    def _outcomes(self, setting: Setting) -> list[ZoneOutcome]:
        """Return the outcomes of all zones in a setting, each with all methods."""
        parts: dict[int, list[ZoneOutcome]] = {}
        for name, task in self.tasks.items():
            if task.setting == setting:
                outcome = self._store.get(name)
                parts.setdefault(outcome.zone, []).append(outcome)
        return [ZoneOutcome.joined(part, setting.methods) for part in parts.values()]

    def _tracked(self, setting: Setting) -> ZoneOutcome:
        """Return the outcomes of all tracked methods in a setting, each with the errors by zones alone."""
        names = [self._tracking_name(setting, method) for method in (None, *setting.methods)]
        blind, *each = (self._store.get(name) for name in names)
        (unseen,) = blind.methods
        methods = (
            replace(method, held_out={**method.held_out, **unseen.held_out})
            for outcome in each
            for method in outcome.methods
        )
        return replace(blind, methods=tuple(methods))

    def _where(self, zone: int) -> str:
        return f"{self._files.name}, experiment '{self._experiment.name}', {zone_in_words(zone)}"

    def _tracking_name(self, setting: Setting, method: str | None) -> str:
        return f"{self._files.name}, experiment '{self._experiment.name}', tracked, {method}, {_named(setting)}"


def _with_walks(files: CityFiles, walks: Path) -> CityFiles:
    """Return the files of a city with other walks; blankets found at another interval are left out."""
    intervals = {scan_walks(path)[1]["interval_s"] for path in (files.walks, walks)}
    if len(intervals) == 1:
        return replace(files, walks=walks)
    return replace(files, walks=walks, predictor=None, findings=None)


def _walks(
    files: CityFiles, folder: Path, *, spacing_m: float | None, interval_s: float | None, progress: Progress
) -> Path:
    """Return walks with this spacing and interval: those of the city, or made from its traces."""
    _, about = scan_walks(files.walks)
    spacing_m = about["spacing_m"] if spacing_m is None else spacing_m
    interval_s = about["interval_s"] if interval_s is None else interval_s
    if (spacing_m, interval_s) == (about["spacing_m"], about["interval_s"]):
        return files.walks
    if files.traces is None:
        raise InputError(
            f"the experiment asks for places {spacing_m:g} m apart and reports every {interval_s:g} s, and the walks "
            "are others",
            path=files.walks,
            hint="Give the traces that they were made from (--set traces=FILE)",
        )
    walks = folder / f"{files.name}-{spacing_m:g}m-{interval_s:g}s.walks.parquet"
    if not walks.exists():
        from geoblanket.mobility.matching import match_traces

        match_traces(files.traces, files.roads, walks, spacing_m=spacing_m, interval_s=interval_s, progress=progress)
    return walks


def _run(
    function: Callable[[_Task], ZoneOutcome],
    tasks: Mapping[str, _Task],
    store: PartStore[ZoneOutcome],
    workers: int | None,
    progress: Callable[[float, float], None],
) -> Iterator[str]:
    """Run what is not finished yet, and yield the name of each task that is."""
    left = {name: task for name, task in tasks.items() if not store.has(name)}
    done = len(tasks) - len(left)
    progress(done, len(tasks))
    if not left:
        return
    processes = count_workers(workers, tasks=len(left), seconds=len(left) * _SECONDS_PER_TASK)
    for name, outcome in run_tasks(function, left, workers=processes):
        store.add(name, outcome)
        done += 1
        progress(done, len(tasks))
        yield name
