"""An experiment in a city: from files to results, on all cores, and resumable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from geoblanket._files import make_folder, sha256_file
from geoblanket._progress import Progress, silent
from geoblanket._unfinished import PartStore
from geoblanket._workers import count_workers, run_tasks
from geoblanket.build.inputs import software_versions
from geoblanket.errors import InputError, ParameterError
from geoblanket.evaluate.city_data import CityData, CityFiles
from geoblanket.evaluate.comparing import ComparisonTask, ZoneOutcome, compare_zone
from geoblanket.evaluate.experiment import Experiment
from geoblanket.evaluate.kept_outcomes import pack_outcome, unpack_outcome
from geoblanket.evaluate.methods import METHODS
from geoblanket.evaluate.results import WHOLE_CITY, write_results
from geoblanket.evaluate.sanity import Violation, check_results
from geoblanket.evaluate.settings import Setting
from geoblanket.evaluate.tabulating import tabulate
from geoblanket.mobility.matching import match_traces
from geoblanket.mobility.walks import scan_walks

__all__ = ["Evaluation", "evaluate_cities", "unfinished_folder"]

_SECONDS_PER_TASK = 10.0
_GROUPS = (
    ("lp_cmdp", "lp_true_mb", "lp_cmdp_refined", "lp_cmdp_split"),
    ("lp_markov1", "lp_markov1_refined", "lp_markov1_split"),
    tuple(key for key, method in METHODS.items() if not method.uses_past),
)
"""Methods that are one task: those whose rows may be the same, and those that are quick."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What came of a run."""

    results: pl.DataFrame
    """`RESULTS_SCHEMA`."""
    notes: tuple[str, ...]
    """What should be known about single methods."""
    violations: tuple[Violation, ...]
    """What contradicts what must hold; see `sanity`."""


def unfinished_folder(out: str | Path) -> Path:
    """Return where a run keeps what it has finished, until all is."""
    return Path(out) / "unfinished"


def evaluate_cities(
    cities: Sequence[CityFiles],
    experiments: Sequence[Experiment],
    out: str | Path,
    *,
    workers: int | None = None,
    resume: bool = False,
    progress: Progress = silent,
) -> Evaluation:
    """Run experiments in cities and write `results.parquet` and `results.csv`, after each of them.

    The same inputs give the same results but for times and memory, however many workers there are, as long as no search
    ends by its time limit.

    Parameters
    ----------
    out
        The folder for the results; made if it is absent.
    workers
        Processes; as many as there are cores if None.
    resume
        Go on with an interrupted run of the same experiments with the same inputs.
    progress
        Called as the work goes on.

    Raises
    ------
    InputError, MismatchError
        If files cannot be used or do not belong together, or another run was interrupted than is resumed.
    WorkerError
        If processes died at some tasks; what others finished is kept.
    OutputError
        If something cannot be written.
    """
    out = make_folder(out)
    if not cities or not experiments:
        raise ParameterError("There must be one city or more, and one experiment or more.")
    about = _about(cities, experiments)
    store = PartStore(unfinished_folder(out), about, resume=resume, pack=pack_outcome, unpack=unpack_outcome)
    tables: list[pl.DataFrame] = []
    notes: list[str] = []
    for experiment in experiments:
        tasks = {task.name: task for files in cities for task in _tasks(files, experiment, store.path, progress)}
        _run(tasks, store, workers=workers, progress=partial(progress, f"experiment {experiment.name}"))
        for files in cities:
            table, more = _collect(files, experiment, tasks, store)
            tables.append(table)
            notes += more
        # After each experiment, so that there is something to look at while the others go on.
        evaluation = _written(pl.concat(tables), notes, out, about)
    store.remove()
    return evaluation


def _written(results: pl.DataFrame, notes: Sequence[str], out: Path, about: Mapping[str, Any]) -> Evaluation:
    violations = check_results(results)
    remarks = {"notes": list(notes), "violations": [violation.as_dict() for violation in violations]}
    write_results(results, out, about={**about, **remarks})
    return Evaluation(results, tuple(notes), violations)


def _about(cities: Sequence[CityFiles], experiments: Sequence[Experiment]) -> dict[str, Any]:
    def identity(files: CityFiles) -> dict[str, Any]:
        paths = {name: value for name, value in vars(files).items() if isinstance(value, Path)}
        for path in paths.values():
            if not path.is_file():
                raise InputError("no such file", path=path)
        return {"time_zone": files.time_zone, **{name: sha256_file(path) for name, path in paths.items()}}

    return {
        "cities": {files.name: identity(files) for files in cities},
        "experiments": {experiment.name: experiment.as_json() for experiment in experiments},
        "software": software_versions(),
    }


def _tasks(files: CityFiles, experiment: Experiment, folder: Path, progress: Progress) -> Iterator[ComparisonTask]:
    """Yield the tasks of an experiment in a city, those of one zone one after the other; walks go to the folder."""
    groups: dict[tuple[Any, ...], list[Setting]] = {}
    for setting in experiment.settings:
        size = WHOLE_CITY if setting.city_wide else setting.max_places
        key = (setting.spacing_m, setting.interval_s, setting.delay, size, setting.loss_case)
        groups.setdefault(key, []).append(setting)
    loaded: dict[tuple[Any, ...], CityData] = {}
    for (spacing_m, interval_s, delay, max_places, loss_case), settings in groups.items():
        walks = _walks(files, folder, spacing_m=spacing_m, interval_s=interval_s, progress=progress)
        if (walks, delay) not in loaded:
            loaded[walks, delay] = CityData(
                _with_walks(files, walks),
                delay=delay,
                destinations=experiment.destinations,
                max_tasks=experiment.max_tasks,
                seed=experiment.seed,
                progress=progress,
            )
        city = loaded[walks, delay]
        zones = city.whole_city() if max_places == WHOLE_CITY else city.zones(max_places)
        chosen_zones = city.chosen_zones(zones, experiment.zones)
        for data in city.zone_data(zones, chosen_zones, loss_case):
            for setting, methods in product(settings, _GROUPS):
                chosen = tuple(method for method in setting.methods if method in methods)
                if not chosen:
                    continue
                yield ComparisonTask(
                    name=f"{_where(files, experiment, data.number)}, {', '.join(chosen)}, {setting!r}",
                    data=data,
                    setting=setting,
                    methods=chosen,
                    gap=experiment.gap,
                    time_limit_s=experiment.time_limit_s,
                    reports=experiment.reports,
                    by_hour_and_speed=experiment.by_hour_and_speed,
                    seed=experiment.seed,
                    process=os.getpid(),
                )


def _with_walks(files: CityFiles, walks: Path) -> CityFiles:
    """Return the files of a city with other walks; of blankets at another interval nothing is known."""
    intervals = {scan_walks(path)[1]["interval_s"] for path in (files.walks, walks)}
    if len(intervals) == 1:
        return replace(files, walks=walks)
    return replace(files, walks=walks, predictor=None, findings=None)


def _where(files: CityFiles, experiment: Experiment, zone: int) -> str:
    return f"{files.name}, experiment '{experiment.name}', zone {zone}"


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
            hint="Give the traces that they were made from (--traces)",
        )
    walks = folder / f"{files.name}-{spacing_m:g}m-{interval_s:g}s.walks.parquet"
    if not walks.exists():
        match_traces(files.traces, files.roads, walks, spacing_m=spacing_m, interval_s=interval_s, progress=progress)
    return walks


def _run(
    tasks: Mapping[str, ComparisonTask],
    store: PartStore[ZoneOutcome],
    *,
    workers: int | None,
    progress: Callable[[float, float], None],
) -> None:
    left = {name: task for name, task in tasks.items() if not store.has(name)}
    done = len(tasks) - len(left)
    progress(done, len(tasks))
    if not left:
        return
    processes = count_workers(workers, tasks=len(left), seconds=len(left) * _SECONDS_PER_TASK)
    for name, outcome in run_tasks(compare_zone, left, workers=processes):
        store.add(name, outcome)
        done += 1
        progress(done, len(tasks))


def _collect(
    files: CityFiles, experiment: Experiment, tasks: Mapping[str, ComparisonTask], store: PartStore[ZoneOutcome]
) -> tuple[pl.DataFrame, list[str]]:
    """Return the results of an experiment in a city, and the notes about methods."""
    notes = []
    parts: dict[Setting, dict[int, list[ZoneOutcome]]] = {setting: {} for setting in experiment.settings}
    for name, task in tasks.items():
        where = _where(files, experiment, task.data.number)
        if not name.startswith(f"{where},"):
            continue
        outcome = store.get(name)
        parts[task.setting].setdefault(outcome.zone, []).append(outcome)
        notes += [
            f"{where}, ε = {task.setting.epsilon:g}, {method.method}: {method.note}"
            for method in outcome.methods
            if method.note
        ]
    outcomes = {
        setting: [ZoneOutcome.joined(parts_of_zone, setting.methods) for parts_of_zone in zones.values()]
        for setting, zones in parts.items()
    }
    return tabulate(experiment.name, files.name, outcomes), notes
