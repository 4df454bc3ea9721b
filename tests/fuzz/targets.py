"""What is fuzzed: each reader, the files it starts from and the changes that reach it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geoblanket._training import Training, epsilon_of
from geoblanket._untrusted import read_object
from geoblanket.blanket.groups import load_walks
from geoblanket.blanket.predictor import load_predictor
from geoblanket.build.blanket_lengths import read_found_blankets, regions_of_source
from geoblanket.build.config import read_config
from geoblanket.errors import LedgerError
from geoblanket.lab.evaluate.experiment import read_experiment
from geoblanket.learning.noise import TrainingBudget
from geoblanket.learning.spending import TrainingLedger
from geoblanket.mechanism import load_bundle
from geoblanket.mechanism.bundle.storage import LatticeBundle, load_for_release
from geoblanket.mobility.walks import Split, scan_walks, split_walks
from geoblanket.release import Ledger
from geoblanket.release.fence import NO_FENCES, Fences, read_fences
from geoblanket.release.hold import HoldFile
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.importer import import_roads
from geoblanket.roads.zones import partition_zones, read_zones
from geoblanket.traces.importing import TraceFormat, import_traces
from geoblanket.traces.table import describe_traces
from geoblanket.tracking.motion_model import MotionModel
from geoblanket.tracking.table import track_table
from geoblanket.tracking.tracker import Tracker, read_report
from tests.audit.second_verifier import check, parse
from tests.fuzz.mutations import (
    Mutation,
    inside_gzip,
    inside_pbf,
    mutate_bytes,
    rehashed_arrays,
    rehashed_header,
    rehashed_ledger,
    resummed_tar,
)
from tests.fuzz.seeds import LEDGER_KEY, Seeds
from tests.mechanism.lattice.frames import check_pairs

_MOST_CELLS_CHECKED = 5_000
BODIES = (
    b'{"lat": 41.15, "lon": -8.61, "time": "2024-07-01T10:00:00Z", "request_id": "a\\u00e9"}',
    b'{"a": [1, 2.5, -3e5, true, null, {"b": "\\ud83d\\ude95"}]}',
)
LINES = (
    b'{"vehicle": "taxi 7", "cell": 17, "slot": 57326400, "time": "2024-07-01T00:00:00Z", "stored": false}',
    b'{"cell": 17, "time": 1719792000.5}',
)


@dataclass(frozen=True)
class Target:
    """A reader.

    Attributes
    ----------
    ending
        Of the name of the file that is read.
    files
        Names of the seeds.
    run
        Reads a file; may raise what `allowed` says, and nothing else.
    mutations
        One is chosen at random each time.
    bodies
        Seeds that are not files.
    """

    ending: str
    files: tuple[str, ...]
    run: Callable[[Path, Seeds], object]
    mutations: tuple[Mutation, ...] = (mutate_bytes,)
    bodies: tuple[bytes, ...] = ()
    value_errors: bool = False


def accepted(bundle_path: Path) -> None:
    """Look at a changed bundle that was loaded without an error; raise AssertionError if it should not have been.

    Whatever is checked here must follow from the promise alone: the bytes are anybody's.
    """
    content = bundle_path.read_bytes()
    if parse(content).places:
        findings = check(content)
        if not findings.holds:
            raise AssertionError(f"A bundle that breaks its promise was accepted: {findings}")


def _walks(path: Path, seeds: Seeds) -> None:
    split_walks(scan_walks(path)[0], path=path, part="all", split=Split())
    load_walks(path, seeds.roads)


def _findings(path: Path, seeds: Seeds) -> None:
    source = read_found_blankets(path)
    regions_of_source(source, seeds.places, partition_zones(seeds.graph, seeds.places, max_places=8))


def _predictor(path: Path, seeds: Seeds) -> None:
    predictor = load_predictor(path)
    predictor.lengths(hour=3, speed_mph=20, region=1)
    regions_of_source(predictor, seeds.places, partition_zones(seeds.graph, seeds.places, max_places=8))


def _traces(trace_format: TraceFormat) -> Callable[[Path, Seeds], None]:
    def run(path: Path, _: Seeds) -> None:
        import_traces([path], path.with_name("out.parquet"), format=trace_format)

    return run


def _lattice(path: Path, _: Seeds) -> None:
    bundle = load_bundle(path)
    if isinstance(bundle, LatticeBundle) and bundle.output_count <= _MOST_CELLS_CHECKED:
        lattice = bundle.lattice
        side = lattice.spec.plane.side
        x, y = np.random.default_rng(0).integers(0, side, (2, 25))
        x[1:6], y[1:6] = (x[0] + np.arange(1, 6)) % side, y[0]
        weights = np.stack([lattice.weights_at(*point) for point in zip(x.tolist(), y.tolist(), strict=True)])
        add_mm = 2 * lattice.certificate.rounding_mm
        epsilon_micro = lattice.spec.epsilon_micro
        check_pairs(weights, *lattice.spec.plane.degrees(x, y), epsilon_micro=epsilon_micro, add_mm=add_mm)


def _bundle(path: Path, _: Seeds) -> None:
    _no_better_than_it_can_be(load_bundle(path).training)
    accepted(path)


def _no_better_than_it_can_be(training: Training) -> None:
    """A promise that is read follows from its noise."""
    promise = training.promise
    if promise is not None and not epsilon_of(promise.rho, promise.delta) <= promise.epsilon * (1 + 1e-6):
        raise AssertionError("A file promises more than its noise allows.")


def _model(path: Path, seeds: Seeds) -> None:
    model = MotionModel.load(path)
    model.in_words()
    _no_better_than_it_can_be(model.training)
    # Whatever the numbers are, beliefs stay beliefs.
    tracker = Tracker(seeds.lattice, model)
    for slot in range(3):
        tracked = tracker.see("a", slot, 5 + slot)
        if not np.isfinite(tracked[:3]).all():
            raise AssertionError("A model made a belief that is none.")


def _released(path: Path, seeds: Seeds) -> None:
    track_table(path, path.with_name("out.parquet"), bundle=seeds.lattice, model=seeds.model)


def _line(path: Path, seeds: Seeds) -> None:
    read_report(path.read_bytes(), seeds.tracker)


def _training_ledger(path: Path, seeds: Seeds) -> None:
    """What a changed ledger still allows is spent, and counted."""
    ledger = TrainingLedger(path)
    before = ledger.account()
    assert before is not None
    before.in_words()
    spent = ledger.spend(seeds.walks, TrainingBudget(0.01, 1e-6, 1e-6, unit="trip"), purpose="fuzzing")
    assert ledger.account() == spent.account
    assert spent.account.learnings[:-1] == before.learnings


def _fences(path: Path, _: Seeds) -> None:
    """Whatever was read can be used and written, and comes back the same."""
    fences = read_fences(path)
    assert Fences.parsed(fences.as_json()) == fences
    assert all(fences.apply_e7(fence.lat_e7, fence.lon_e7) for fence in fences)
    NO_FENCES.with_all(fences)


def _ledger(path: Path, seeds: Seeds) -> None:
    """A ledger that opens says what it said before it was changed."""
    try:
        for beside in ("count", "hold"):
            path.with_name(f"{path.name}.{beside}").write_bytes(seeds.read(f"car.ledger.{beside}"))
        ledger = Ledger.open(path, device_key=LEDGER_KEY)
        ledger.close()
        account = ledger.account("")
        known = ledger.fences.as_json().encode(), account.reports, account.spent_micro, ledger.commits
        assert known == (seeds.read("fences.json"), 2, 2_000_000, 4)
    finally:
        for file in path.parent.glob(f"{path.name}-*"):
            file.unlink()


def _hold(path: Path, seeds: Seeds) -> None:
    """A changed file of draws is worth nothing, or says what it said."""
    slot_ms = 1_719_792_000_000
    known = HoldFile(seeds.folder / "car.ledger.hold", *seeds.hold_keys).read("", slot_ms)
    file = HoldFile(path, *seeds.hold_keys)
    is_known = file.read("", slot_ms) == known
    assert known is not None
    assert is_known or file.read("", slot_ms) is None
    file.write("", known)
    file.close()
    assert HoldFile(path, *seeds.hold_keys).read("", slot_ms) == known
    if not is_known:
        raise LedgerError("It is worth nothing.")


def _roads(path: Path, _: Seeds) -> None:
    graph = RoadGraph.load(path)
    graph.lines()
    graph.one_of_each_road()


# Only what a device receives is also changed with its hashes made right again.
_ARRAYS = (mutate_bytes, rehashed_arrays, rehashed_arrays, rehashed_header, rehashed_header)

TARGETS: dict[str, Target] = {
    "walks": Target("parquet", ("walks.parquet", "walks-plain.parquet"), _walks),
    "traces": Target("parquet", ("traces.parquet", "traces-plain.parquet"), lambda path, _: describe_traces(path)),
    "findings": Target("parquet", ("findings.parquet", "findings-plain.parquet"), _findings),
    "zones": Target(
        "parquet", ("zones.parquet", "zones-plain.parquet"), lambda path, seeds: read_zones(path, seeds.places)
    ),
    "any-parquet": Target("parquet", ("traces.parquet", "traces-plain.parquet"), _traces("table")),
    "any-csv": Target("csv", ("points.csv",), _traces("table")),
    "any-csv-gz": Target("csv.gz", ("points.csv.gz",), _traces("table"), (mutate_bytes, inside_gzip(mutate_bytes))),
    "porto": Target("csv", ("porto.csv",), _traces("porto")),
    "rome": Target("txt", ("rome.txt",), _traces("rome")),
    "cabs": Target("tar", ("cabs.tar",), _traces("cabspotting"), (mutate_bytes, resummed_tar, resummed_tar)),
    "cabs-gz": Target("tar.gz", ("cabs.tar.gz",), _traces("cabspotting"), (mutate_bytes, inside_gzip(resummed_tar))),
    "cabs-xz": Target("tar.xz", ("cabs.tar.xz",), _traces("cabspotting")),
    "roads": Target("roads", ("town.roads",), _roads),
    "graphml": Target("graphml", ("roads.graphml",), lambda path, _: import_roads([path])),
    "graphml-gz": Target(
        "graphml.gz",
        ("roads.graphml.gz",),
        lambda path, _: import_roads([path]),
        (mutate_bytes, inside_gzip(mutate_bytes)),
    ),
    "osm-xml": Target("osm", ("roads.osm",), lambda path, _: import_roads([path])),
    "osm-pbf": Target("osm.pbf", ("roads.osm.pbf",), lambda path, _: import_roads([path]), (mutate_bytes, inside_pbf)),
    "experiment": Target("toml", ("experiment.toml",), lambda path, _: read_experiment(str(path))),
    "build-config": Target("toml", ("build.toml",), lambda path, _: read_config(path)),
    "predictor": Target("blanket", ("town.blanket",), _predictor),
    "model": Target("model", ("town.model", "private.model"), _model),
    "released": Target("parquet", ("released.parquet", "released-plain.parquet"), _released),
    "line": Target("json", (), _line, bodies=LINES),
    "request": Target("json", (), lambda path, _: read_object(path.read_bytes()), bodies=BODIES, value_errors=True),
    "training-ledger": Target(
        "json", ("walks.parquet.spent.json",), _training_ledger, (mutate_bytes, rehashed_ledger, rehashed_ledger)
    ),
    "fences": Target("json", ("fences.json",), _fences),
    "ledger": Target("ledger", ("car.ledger",), _ledger),
    "hold": Target("hold", ("car.ledger.hold",), _hold),
    "lattice": Target("bundle", ("lattice.bundle",), _lattice, _ARRAYS),
    "bundle": Target(
        "bundle", ("located.bundle", "histories.bundle", "plain.bundle", "private.bundle"), _bundle, _ARRAYS
    ),
    "known-bundle": Target(
        "bundle",
        ("located.bundle", "histories.bundle"),
        lambda path, _: load_for_release(path, is_known=lambda _: True),
        _ARRAYS,
    ),
}
"""By name."""
