"""`geoblanket learn`: from walks with a promise, and from released reports."""

from __future__ import annotations

import builtins
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from geoblanket._files import sha256_file
from geoblanket._tables import scan_table, write_table
from geoblanket._training import training_of
from geoblanket.learning import private
from geoblanket.learning.spending import TrainingAccount, TrainingLedger
from geoblanket.mechanism import load_bundle
from geoblanket.mechanism.bundle.storage import save_lattice
from geoblanket.mobility.walks import scan_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.tracking.motion_model import MotionModel
from geoblanket.tracking.table import TRACKED_CELLS_SCHEMA
from tests.cli.test_lattice import run
from tests.mechanism.bundles import load_lattice
from tests.release.worlds import save_walks
from tests.roads.graphs import grid_graph
from tests.serve.service.city_lattices import save_city
from tests.tracking.lattice_reports import SLOT, cells_near, near_model, save_cells

GRAPH = grid_graph(6, 8, step_deg=0.004)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    GRAPH.save(tmp_path / "city.roads")
    walks = [[(start + step) % 48 for step in range(10)] for start in range(42)]
    save_walks(tmp_path / "walks.parquet", walks, roads=GRAPH.identity)  # 7 vehicles with 6 trips each
    monkeypatch.chdir(tmp_path)
    return tmp_path


def learn(*options: object, epsilon: float = 1) -> tuple[int, str, str, BaseException | None]:
    given = ("--walks", "walks.parquet", "--roads", "city.roads", "--epsilon-train", epsilon)
    return run("learn", *given, "--out", "m", "--overwrite", *options)


def account(walks: str = "walks.parquet") -> TrainingAccount:
    found = TrainingLedger.beside(walks).account()
    assert found is not None
    return found


def with_vehicles(folder: Path, vehicle: pl.Expr) -> None:
    frame, about = scan_walks(folder / "walks.parquet")
    table = frame.with_columns(vehicle=vehicle.cast(pl.String)).collect()
    write_table(table, folder / "walks.parquet", kind="walks", about=about)


def test_private_model_states_its_promise_and_what_is_left(folder: Path) -> None:
    code, text, talk, error = learn("--json")
    assert code == 0, (talk, error)
    facts = json.loads(text)
    model = MotionModel.load(folder / "m")
    promise = model.training.promise
    assert promise is not None
    assert (promise.unit, promise.units_are, promise.epsilon, promise.delta) == ("vehicle", "noisy", 1.0, 1e-6)
    assert promise.problem() is None
    assert facts["training"] == model.training.as_json()
    assert facts["ledger"]["file"] == str((folder / "walks.parquet.spent.json").resolve())
    assert facts["ledger"]["spent_epsilon"] == pytest.approx(1)
    assert facts["ledger"]["learnings"] == 1
    assert facts["ledger"]["vehicles_have_a_promise"] is True
    last = talk.splitlines()[-1]
    assert "learned with ε = 1, δ = 1e-06 for each vehicle" in last
    assert "These walks were learned from once: ε = 1 of 8 is spent" in last


def test_tables_tell_each_part_and_its_cost(folder: Path) -> None:
    code, text, talk, error = learn("--set", "order=1", "--set", "units=9")
    assert code == 0, (talk, error)
    promise = MotionModel.load(folder / "m").training.promise
    assert promise is not None
    assert (promise.units, promise.units_are) == (9, "declared")
    assert "The counts of each vehicle (9 as declared)" in talk
    for part in promise.parts:
        assert f"{part.rho:.4g}" in text
    assert "What was counted, and the noise that was added" in text
    assert "bytes" in text
    assert run("verify", "m")[0] == 0


def test_learnings_add_up_until_the_total(folder: Path) -> None:
    assert learn("--set", "total_epsilon=2")[0] == 0
    first = MotionModel.load(folder / "m").training.promise
    assert learn(epsilon=1.5)[0] == 0
    second = MotionModel.load(folder / "m").training.promise
    assert first is not None
    assert second is not None
    assert (first.rho_before, second.rho_before) == (0, account().learnings[0].rho)
    assert 1.5 < second.total_epsilon < 2
    model = (folder / "m").read_bytes()
    code, _, _, error = learn()
    assert code == 1
    assert "is spent in 2 learning(s)" in str(error)
    assert (folder / "m").read_bytes() == model
    code, _, _, error = learn("--set", "total_epsilon=8")
    assert "add raise_total=true" in str(error)
    assert learn("--set", "total_epsilon=8", "--set", "raise_total=true")[0] == 0
    assert len(account().learnings) == 3


def test_ledger_can_be_elsewhere(folder: Path) -> None:
    assert learn("--set", "ledger=spent.json")[0] == 0
    assert not (folder / "walks.parquet.spent.json").exists()
    assert len(TrainingLedger("spent.json").account().learnings) == 1  # type: ignore[union-attr]


def test_by_trip_vehicles_are_promised_nothing_in_total(folder: Path) -> None:
    code, _, talk, error = learn("--set", "unit=trip")
    assert code == 0, (talk, error)
    promise = MotionModel.load(folder / "m").training.promise
    assert promise is not None
    assert promise.unit == "trip"
    code, _, talk, error = learn()
    assert code == 0, (talk, error)
    assert "vehicles have no promise in total" in talk.splitlines()[-1]
    promise = MotionModel.load(folder / "m").training.promise
    assert promise is not None
    assert promise.in_words() == "learned with ε = 1, δ = 1e-06 for each vehicle"


@pytest.mark.parametrize("names", [pl.lit(None), pl.lit(""), pl.when(pl.col("trip") > 0).then(pl.lit("a"))])
def test_without_names_of_vehicles_the_caller_has_to_choose_the_trip(folder: Path, names: pl.Expr) -> None:
    with_vehicles(folder, names)
    code, _, _, error = learn()
    assert code == 1
    assert "a walk names no vehicle" in str(error)
    assert "learn with unit=trip" in str(error)
    assert TrainingLedger.beside("walks.parquet").account() is None
    code, _, talk, error = learn("--set", "unit=trip")
    assert code == 0, (talk, error)
    assert "for each trip" in talk.splitlines()[-1]


@pytest.mark.parametrize(("options", "words"), [
    (("--set", "delta=0.2", "--set", "units=7"), "too weak for 7 vehicles"),
    (("--set", "delta=0"), "δ of learning must be more than 0"),
    (("--set", "delta=0.03", "--set", "unit=trip", "--set", "units=42"), "too weak for 42 trips"),
    (("--set", "units=1"), "number of units must be 2 or more"),
    (("--epsilon-train", 0), "ε of learning must be more than 0"),
    (("--epsilon-train", -1), "ε of learning must be more than 0"),
    (("--epsilon-train", "nan"), "ε of learning must be more than 0"),
    (("--epsilon-train", 65), "at most 64"),
    (("--epsilon-train", 9), "The total was stated to be 8"),
    (("--set", "total_epsilon=0"), "total ε of learnings"),
    (("--out", "absent/m"), "does not exist"),
    (("--set", "ledger=absent/l"), "does not exist"),
    (("--set", "ledger=walks.parquet"), "is damaged or was edited"),
    (("--roads", "absent.roads"), "no such file"),
    (("--walks", "absent.parquet"), "no such file"),
    (("--walks", "city.roads"), "not a table of walks"),
    (("--released", "r.parquet"), "either --walks or --released"),
    (("--bundle", "b"), "--bundle needs --released"),
    (("--set", "rounds=3"), "rounds needs --released"),
])  # fmt: skip
def test_bad_input_is_refused_in_words_before_anything_is_spent(
    folder: Path, options: tuple[object, ...], words: str
) -> None:
    code, _, _, error = learn(*options)
    assert code == 1
    assert words in str(error)
    assert not (folder / "m").exists()
    assert TrainingLedger.beside("walks.parquet").account() is None


@pytest.mark.parametrize(("options", "words"), [
    ((), "either --walks or --released"),
    (("--walks", "walks.parquet", "--roads", "city.roads"), "needs --roads and --epsilon-train"),
    (("--walks", "walks.parquet", "--epsilon-train", 1), "needs --roads and --epsilon-train"),
    (("--released", "r", "--roads", "city.roads"), "needs --bundle"),
    (("--released", "r", "--bundle", "b"), "either --start or --roads"),
    (("--released", "r", "--bundle", "b", "--start", "s", "--roads", "city.roads"), "either --start or --roads"),
    (("--released", "r", "--bundle", "b", "--start", "s", "--set", "order=1"), "The model of --start has its own"),
    (("--released", "r", "--epsilon-train", 1), "--epsilon-train needs --walks"),
    (("--released", "r", "--set", "raise_total=true"), "raise_total needs --walks"),
    (("--released", "r", "--set", "units=7"), "units needs --walks"),
])  # fmt: skip
def test_options_that_do_not_go_together(folder: Path, options: tuple[object, ...], words: str) -> None:
    code, _, _, error = run("learn", *options, "--out", "m")
    assert code == 1
    assert words in str(error)
    assert not (folder / "m").exists()


def test_walks_on_other_roads_cost_nothing(folder: Path) -> None:
    grid_graph(5, 5, step_deg=0.004).save(folder / "other.roads")
    code, _, _, _ = learn("--roads", "other.roads")
    assert code == 1
    assert TrainingLedger.beside("walks.parquet").account() is None


def test_edited_ledger_stops_everything(folder: Path) -> None:
    assert learn()[0] == 0
    file, model = folder / "walks.parquet.spent.json", (folder / "m").read_bytes()
    file.write_text(file.read_text().replace('"vehicle"', '"trip"'))
    code, _, _, error = learn()
    assert code == 1
    assert "nobody knows what was spent" in str(error)
    assert (folder / "m").read_bytes() == model


@pytest.mark.usefixtures("folder")
def test_what_is_interrupted_after_it_was_counted_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MotionModel, "save", full)
    code, _, talk, _ = learn()
    assert code == 1
    assert "No model was written, but the learning that had begun counts. These walks were learned from once" in talk
    assert len(account().learnings) == 1


INTERRUPTED = """
import os
from geoblanket.cli import main
from geoblanket.learning import private

def noisy(*args, **options):
    os.kill(os.getpid(), int(os.environ["SIGNAL"]))
    raise AssertionError("not reached")

private.noisy = noisy
main()
"""


# A polite kill ends like Ctrl-C.
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_learning_that_is_ended_writes_nothing_and_counts(folder: Path, how: signal.Signals) -> None:
    assert hasattr(private, "noisy")
    arguments = ["learn", "--walks", "walks.parquet", "--roads", "city.roads", "--epsilon-train", "1", "--out", "m"]
    command = [sys.executable, "-c", INTERRUPTED, *arguments]
    environment = os.environ | {"SIGNAL": str(int(how))}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    assert ended.returncode == (-how if how == signal.SIGKILL else 130)
    assert len(account().learnings) == 1
    assert {path.name for path in folder.iterdir() if ".partial" in path.name} == set()
    assert not (folder / "m").exists()
    if how != signal.SIGKILL:
        assert "the learning that had begun counts" in ended.stderr


def test_without_opendp_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name.startswith("opendp"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    code, _, _, error = learn()
    assert code == 1
    assert "pip install 'geoblanket[private]'" in str(error)
    assert TrainingLedger.beside("walks.parquet").account() is None
    assert not (folder / "m").exists()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lattice, reports of three vehicles that go round in the middle of it, a map and a model of that place."""
    made = tmp_path_factory.mktemp("released")
    save_city(made / "city.bundle")
    bundle, start = load_bundle(made / "city.bundle"), near_model()
    places = [[(16 + 7 * (step % 3) + vehicle) for step in range(30)] for vehicle in range(3)]
    rows = [
        (f"v{vehicle}", SLOT + step, cell)
        for vehicle, way in enumerate(places)
        for step, cell in enumerate(cells_near(bundle, start, way))
    ]
    save_cells(made / "released.parquet", bundle, rows)
    start.save(made / "start.model")
    grid_graph(5, 5, step_deg=0.003, lat=41.144, lon=-8.606).save(made / "city.roads")
    return made


@pytest.fixture
def reports(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("start", [("--start", "start.model"), ("--roads", "city.roads", "--set", "order=1")])
def test_from_released_reports_nothing_more_is_spent(reports: Path, start: tuple[object, ...]) -> None:
    given = ("--released", "released.parquet", "--bundle", "city.bundle", *start, "--set", "rounds=2")
    code, text, talk, error = run("learn", *given, "--out", "m", "--json")
    assert code == 0, (talk, error)
    facts, model = json.loads(text), MotionModel.load(reports / "m")
    assert facts["learned"]["from"] == "released"
    (told,) = model.training.released
    assert (model.training.source, told.epsilon, told.most_reports) == ("released", 4.0, 30)
    assert told.table == sha256_file("released.parquet")
    assert facts["training"] == model.training.as_json()
    words = "learned from released reports, ε = 4 per km for each and at most 30 of one vehicle"
    assert words in talk
    assert list(reports.glob("*.spent.json")) == []
    code, text, talk, _ = run("track", "city.bundle", "released.parquet", "--model", "m", "--out", "t.parquet")
    assert code == 0, talk
    assert words in scan_table("t.parquet", kind="tracked cells", schema=TRACKED_CELLS_SCHEMA)[1]["learned"]
    code, text, *_ = run("verify", "m")
    assert code == 0
    assert f"the model was {words}." in text
    assert "nothing was learned from anyone" not in text.lower()
    assert "adds up over all reports of a vehicle" in text


def test_reports_that_were_learned_from_are_named_by_walks_and_bundles_of_the_model(reports: Path) -> None:
    given = ("--released", "released.parquet", "--bundle", "city.bundle", "--roads", "city.roads", "--set", "order=1")
    assert run("learn", *given, "--set", "rounds=1", "--set", "spacing_m=0", "--out", "m")[0] == 0
    stated = MotionModel.load(reports / "m").training
    code, _, talk, error = run(
        *("sample", "--model", "m", "--roads", "city.roads", "--out", "w.parquet", "--set", "trips=300")
    )
    assert code == 0, (talk, error)
    assert "released reports, ε = 4 per km" in talk
    assert training_of(scan_walks("w.parquet")[1]) == stated
    code, _, talk, error = run(
        *("build", "--model", "m", "--roads", "city.roads", "--out", "z.bundle", "--epsilon", 4, "--set", "order=1"),
        *(
            "--set",
            "max_rows=25",
            "--set",
            "max_places=20",
            "--set",
            "gap=0.2",
            "--set",
            "loss=straight",
            "--set",
            "workers=1",
        ),
    )
    assert code == 0, (talk, error)
    assert "Released reports were learned from" in talk
    assert load_bundle("z.bundle").training == stated
    for command in ("verify", "show"):
        code, text, *_ = run(command, "z.bundle")
        assert code == 0
        assert "released reports, ε = 4 per km" in " ".join(text.split())
        assert "nothing was learned from anyone" not in text.lower()


def test_step_is_the_interval_of_the_reports(reports: Path) -> None:
    spec = load_lattice("city.bundle").lattice
    assert spec is not None
    save_lattice(Path("minutes.bundle"), spec.spec, version=1, interval_s=60)
    bundle = load_bundle("minutes.bundle")
    save_cells(
        reports / "r", bundle, [("v", SLOT + t, 4000) for t in range(5)], {"bundle": bundle.sha256, "interval_s": 60.0}
    )
    given = ("--released", "r", "--bundle", "minutes.bundle", "--set", "rounds=1", "--out", "m")
    code, _, talk, error = run("learn", *given, "--roads", "city.roads")
    assert code == 0, (talk, error)
    assert MotionModel.load("m").interval_s == 60
    code, _, _, error = run("learn", *given, "--start", "start.model", "--overwrite")
    assert code == 1
    assert "whose step is the interval of the reports" in str(error)


def test_start_with_a_promise_keeps_it(reports: Path) -> None:
    walks = [[(start + step) % 25 for step in range(10)] for start in range(42)]
    save_walks(reports / "walks.parquet", walks, roads=RoadGraph.load(reports / "city.roads").identity)
    assert learn("--set", "delta=1e-7")[0] == 0
    promised = MotionModel.load(reports / "m").training
    given = ("--released", "released.parquet", "--bundle", "city.bundle", "--start", "m", "--set", "rounds=1")
    code, _, talk, error = run("learn", *given, "--out", "m2")
    assert code == 0, (talk, error)
    both = MotionModel.load(reports / "m2").training
    assert (both.source, both.promise, both.report_epsilon) == ("private", promised.promise, 4.0)
    assert "learned with ε = 1, δ = 1e-07 for each vehicle" in talk


@pytest.mark.parametrize(("options", "words"), [
    (("--bundle", "absent"), "no such file"),
    (("--bundle", "start.model"), "is not a"),
    (("--released", "absent"), "no such file"),
    (("--released", "city.bundle"), "not a table of released cells"),
    (("--start", "absent"), "no such file"),
    (("--start", "city.bundle"), "not a motion model"),
    (("--out", "absent/m"), "does not exist"),
])  # fmt: skip
def test_bad_files_are_refused_in_words(reports: Path, options: tuple[object, ...], words: str) -> None:
    given = ("--released", "released.parquet", "--bundle", "city.bundle", "--start", "start.model", "--out", "m")
    code, _, _, error = run("learn", *given, *options)
    assert code == 1
    assert words in str(error)
    assert not (reports / "m").exists()
