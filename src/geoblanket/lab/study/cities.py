"""The two cities of the paper, and San Francisco: from raw files to the inputs of an evaluation."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl

from geoblanket._display import Progress, silent
from geoblanket._files import atomic_output, make_folder, temporary_folder
from geoblanket._tables import scan_table, write_table
from geoblanket.blanket.discovery import DiscoveryOptions, discover
from geoblanket.blanket.models import NetworkOptions
from geoblanket.blanket.predictor import Predictor, save_predictor
from geoblanket.blanket.training import train
from geoblanket.errors import InputError, MismatchError
from geoblanket.lab.evaluate.city_data import CityFiles
from geoblanket.lab.study.report import write_report
from geoblanket.lab.study.running import StudyOptions, run_study
from geoblanket.mobility.histories import LONGEST_PAST
from geoblanket.mobility.matching import match_once
from geoblanket.mobility.walks import Split, scan_walks, split_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.importer import import_roads
from geoblanket.roads.simplification import in_largest_part
from geoblanket.traces.importing import Reading, TraceFormat, import_traces
from geoblanket.traces.table import OCCUPIED, TRACES_SCHEMA

_TIMED = 2000
"""Predictions to measure the time of."""
_TABLE_COLUMNS = {"vehicle": "trip", "trip": "trip", "time": "time", "lat": "lat", "lon": "lon"}


@dataclass(frozen=True)
class CitySource:
    """Where the raw files of a city are, and how they are read."""

    name: str
    roads: tuple[str, ...]
    traces: dict[str, TraceFormat]
    """Files and their formats: the whole data set, or else a sample of it."""
    regions: str
    """Of the blankets; see `discover`."""
    time_zone: str
    box: tuple[float, float, float, float] | None = None
    """South, north, west and east of the part that zones are cut from, degrees; None for all of it."""
    interval_s: float = 30.0
    """Between the steps of walks, seconds."""
    by: tuple[str, ...] | None = None
    """Grouping for blankets; None for that of the setting."""
    zones: int = 0
    """Zones to draw where an experiment would take all of them; 0: all."""
    public: str = ""
    """Where anyone gets the traces."""


CITY_SOURCES = {
    "porto": CitySource(
        "porto",
        roads=("nodes.csv", "edges.csv"),
        traces={"train.csv": "porto", "train_sample.csv.gz": "porto"},
        regions="porto",
        public="Kaggle, ECML/PKDD 15: Taxi Trajectory Prediction, train.csv",
        time_zone="Europe/Lisbon",
    ),
    "rome": CitySource(
        "rome",
        roads=("nodes.csv", "edges.csv.gz"),
        traces={"taxi_february.txt": "rome", "trips_sample.csv.gz": "table"},
        regions="rome",
        public="CRAWDAD roma/taxi (Bracciale and others, 2014), taxi_february.txt",
        time_zone="Europe/Rome",
        # Within the Aurelian walls, about: where the sample has enough vehicles.
        box=(41.880, 41.920, 12.450, 12.520),
    ),
    "sanfrancisco": CitySource(
        "sanfrancisco",
        roads=("nodes.csv", "edges.csv.gz"),
        traces={"cabspottingdata.tar.gz": "cabspotting", "cabspotting_421_taxis.tar.xz": "cabspotting"},
        regions="sanfrancisco",
        time_zone="America/Los_Angeles",
        interval_s=60.0,  # as often as its taxis tell where they are
        by=("hour", "speed", "region"),  # 24 days of each taxi are enough for groups by hour too
        zones=6,
        public="CRAWDAD epfl/mobility (Piorkowski and others, 2009), cabspottingdata.tar.gz",
    ),
}


@dataclass(frozen=True)
class PaperSetting:
    """How a city of the paper is prepared."""

    spacing_m: float = 250.0
    """Between places, metres; 0: every node of the roads is a place."""
    by: tuple[str, ...] = ("speed", "region")
    """Grouping for blankets. Not by hour: one mechanism serves all day."""
    largest: int = LONGEST_PAST
    """The largest blanket to test."""
    test: str = "analytic"
    """Of conditional independence; see `geoblanket.blanket.independence`."""
    network: NetworkOptions = field(default_factory=NetworkOptions)
    time_zone: str | None = None
    """Of the hours; None for the city's own."""
    max_points: int | None = None
    """Of the traces, at most; of more, whole trips are drawn. None: all."""


SETTINGS = {
    "ours": PaperSetting(),
    "published": PaperSetting(
        spacing_m=0.0,
        by=("hour", "speed", "region"),
        largest=5,
        test="scetbon",
        network=NetworkOptions(learning_rate=1e-5, patience=400),
        time_zone="UTC",
    ),
}
"""By name. `published` is the paper's: nodes as places, its groups, test and training, and hours in UTC."""


def prepare_city(
    city: CitySource,
    data: str | Path,
    out: str | Path,
    *,
    setting: PaperSetting | None = None,
    workers: int | None = None,
    progress: Progress = silent,
) -> CityFiles:
    """Import roads and traces, match them, find blankets and train their predictor.

    Existing files are used as they are: remove the folder to begin anew.

    Parameters
    ----------
    data
        The folder with a folder for each city.
    out
        The folder for the results.
    setting
        How the city is prepared; `SETTINGS["ours"]` if None.

    Raises
    ------
    InputError
        If raw files are absent or cannot be used.
    MismatchError
        If the folder has files of another setting.
    """
    setting = setting or SETTINGS["ours"]
    _check_setting(Path(out) / "setting.json", setting)
    city = replace(city, time_zone=setting.time_zone or city.time_zone)
    source, folder = Path(data) / city.name, make_folder(out)
    preparation = _Preparation(city, setting, source, folder, workers, progress)
    for name, make in {
        "whole.roads": preparation.whole_roads,
        "city.roads": preparation.roads,
        "traces.parquet": preparation.traces,
        "walks.parquet": preparation.walks,
        "walks-nodes.parquet": preparation.walks_between_nodes,
        "walks-train.parquet": preparation.training_walks,
        "findings.parquet": preparation.findings,
        "city.predictor": preparation.predictor,
    }.items():
        if not (folder / name).exists():
            make(folder / name)
    locations = source / "paper_locations.csv"
    return CityFiles(
        name=city.name,
        roads=folder / "city.roads",
        walks=folder / "walks.parquet",
        predictor=folder / "city.predictor",
        findings=folder / "findings.parquet",
        traces=folder / "traces.parquet",
        locations=locations if locations.exists() else None,
        time_zone=city.time_zone,
        raw=(*(source / name for name in city.roads), preparation.raw_traces()),
    )


def study_city(
    city: CitySource,
    folder: str | Path,
    *,
    setting: PaperSetting | None = None,
    workers: int | None = None,
    progress: Progress = silent,
) -> None:
    """Test blankets in every grouping in a prepared folder, as the paper's section 5.1 does; write its folder `study`.

    An interrupted study continues when it is started again.
    """
    folder = Path(folder)
    tests = DiscoveryOptions(regions=city.regions, time_zone=(setting or SETTINGS["ours"]).time_zone or city.time_zone)
    roads, options = folder / "whole.roads", StudyOptions(tests, traces=folder / "traces.parquet")
    study = run_study(
        folder / "walks-nodes.parquet", roads, folder / "study", options, workers=workers, progress=progress
    )
    write_report(study, folder / "study", roads=roads, regions=city.regions, paper=city.name, progress=progress)


def _check_setting(path: Path, setting: PaperSetting) -> None:
    """Keep the setting with the files that are made for it; refuse files of another."""
    wanted = json.dumps(asdict(setting), indent=2)
    if path.exists():
        if path.read_text(encoding="utf-8") != wanted:
            raise MismatchError(f"{path.parent}: was prepared for another setting ({path.name}). Give another folder.")
        return
    make_folder(path.parent)
    with atomic_output(path) as temporary:
        temporary.write_text(wanted, encoding="utf-8")


@dataclass(frozen=True)
class _Preparation:
    """How each file of a city is made from those before it."""

    city: CitySource
    setting: PaperSetting
    source: Path
    folder: Path
    workers: int | None
    progress: Progress

    def whole_roads(self, out: Path) -> None:
        graph, _ = import_roads([self._existing(name) for name in self.city.roads])
        graph.save(out)

    def roads(self, out: Path) -> None:
        graph = RoadGraph.load(self.folder / "whole.roads")
        if self.city.box is not None:
            south, north, west, east = self.city.box
            inside = (graph.lat >= south) & (graph.lat <= north) & (graph.lon >= west) & (graph.lon <= east)
            graph = graph.keep_nodes(inside)
            graph = graph.keep_nodes(np.asarray(in_largest_part(graph)))
        graph.save(out)

    def traces(self, out: Path) -> None:
        file = self.raw_traces()
        kind = self.city.traces[file.name]
        reading = Reading(columns=_TABLE_COLUMNS if kind == "table" else {})
        with temporary_folder(out) as folder:
            imported = folder / out.name
            import_traces([file], imported, format=kind, reading=reading, progress=self.progress)
            _draw_trips(imported, out, self.setting.max_points)

    def raw_traces(self) -> Path:
        """Return the first file of traces that is there."""
        for name in self.city.traces:
            if (self.source / name).exists():
                return self.source / name
        names = " or ".join(self.city.traces)
        raise InputError(f"has no {names}", path=self.source, hint=f"Get the public file: {self.city.public}")

    def walks(self, out: Path) -> None:
        outs = {self.setting.spacing_m: out}
        if self.city.box is None:  # of the same roads, so that one matching serves both
            outs.setdefault(0.0, self.folder / "walks-nodes.parquet")
        self._match({spacing_m: file for spacing_m, file in outs.items() if not file.exists()}, "city.roads")

    def walks_between_nodes(self, out: Path) -> None:
        # Of the whole city: blankets need many walks, and are found for regions of the map, not for places.
        walks = self.folder / "walks.parquet"
        if self.city.box is None and not self.setting.spacing_m:
            with atomic_output(out) as temporary:
                shutil.copyfile(walks, temporary)
        else:
            self._match({0.0: out}, "whole.roads")

    def training_walks(self, out: Path) -> None:
        # Those of vehicles that the evaluation does not hold out: nothing is learned from the others.
        judged, _ = scan_walks(self.folder / "walks.parquet")
        parts = split_walks(judged, path=self.folder / "walks.parquet", part="held_out", split=Split())
        of_judged = pl.Series(parts.walks[parts.chosen]).implode()
        held_out = judged.filter(pl.col("walk").is_in(of_judged)).select("vehicle").unique()
        walks, about = scan_walks(self.folder / "walks-nodes.parquet")
        write_table(
            walks.join(held_out, on="vehicle", how="anti", maintain_order="left"), out, kind="walks", about=about
        )

    def findings(self, out: Path) -> None:
        discover(
            self.folder / "walks-train.parquet",
            self.folder / "whole.roads",
            DiscoveryOptions(
                by=[self.city.by or self.setting.by],
                regions=self.city.regions,
                largest=self.setting.largest,
                test=self.setting.test,
                time_zone=self.city.time_zone,
            ),
            workers=self.workers,
            out=out,
            resume=True,
            progress=self.progress,
        )

    def predictor(self, out: Path) -> None:
        started = time.perf_counter()
        result = train(self.folder / "findings.parquet", network=self.setting.network, progress=self.progress)
        facts = {
            "seconds": time.perf_counter() - started,
            "epochs": result.epochs,
            "predict_us": _times_us(result.predictor),
            "groups": dict(result.groups),
            "hypotheses": dict(result.hypotheses),
            "evaluations": [asdict(evaluation) for evaluation in result.evaluations],
            "predicted_lengths": {str(length): count for length, count in result.length_by_sample.items()},
            "found_lengths": {str(length): count for length, count in result.found_by_sample.items()},
        }
        with atomic_output(self.folder / "training.json") as temporary:
            temporary.write_text(json.dumps(facts, indent=2), encoding="utf-8")
        save_predictor(result.predictor, out)

    def _match(self, outs: dict[float, Path], roads: str) -> None:
        match_once(
            self.folder / "traces.parquet",
            self.folder / roads,
            outs,
            interval_s=self.city.interval_s,
            workers=self.workers,
            progress=self.progress,
        )

    def _existing(self, name: str) -> Path:
        path = self.source / name
        if not path.exists():
            names = ", ".join((*self.city.roads, " or ".join(self.city.traces)))
            hint = f"The folder DATA/{self.city.name} must have {names}; the last is public: {self.city.public}"
            raise InputError("no such file", path=path, hint=hint)
        return path


def _draw_trips(imported: Path, out: Path, most: int | None) -> None:
    """Move a table of traces to its place, or only drawn trips of at most this many points."""
    frame, about = scan_table(imported, kind="traces", schema=TRACES_SCHEMA, optional=OCCUPIED)
    trips = frame.group_by("trip").len().sort("trip").collect(engine="streaming")
    points = trips["len"].to_numpy().astype(np.int64)
    if most is None or points.sum() <= most:
        imported.replace(out)
        return
    order = np.random.default_rng(0).permutation(len(points))
    drawn = trips["trip"].gather(order[np.cumsum(points[order]) <= most])
    write_table(frame.filter(pl.col("trip").is_in(drawn.implode())), out, kind="traces", about=about)


def _times_us(predictor: Predictor) -> dict[str, float]:
    """Return how long single predictions take, microseconds."""
    rng = np.random.default_rng(0)
    times = np.empty(_TIMED)
    for number, (hour, speed_mph) in enumerate(
        zip(rng.integers(24, size=_TIMED), rng.uniform(0, 120, _TIMED), strict=True)
    ):
        started = time.perf_counter_ns()
        predictor.length(hour=int(hour), speed_mph=float(speed_mph), region=0)
        times[number] = (time.perf_counter_ns() - started) / 1000
    return {
        "mean": float(times.mean()),
        "98 %": float(np.quantile(times, 0.98)),
        "within 2 ms": float(np.mean(times <= 2000)),
    }
