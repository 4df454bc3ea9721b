"""What a build says of those whose trips it was learned from: never more than its walks and blankets can keep."""

from __future__ import annotations

import json
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from geoblanket._tables import write_table
from geoblanket._training import NOBODY, WALKS, Training
from geoblanket.blanket.discovery import DiscoveryOptions, discover
from geoblanket.blanket.findings import scan_findings
from geoblanket.blanket.models import NetworkOptions
from geoblanket.blanket.predictor import Predictor, load_predictor, save_predictor
from geoblanket.blanket.training import train
from geoblanket.build.building import build_bundle
from geoblanket.build.config import BuildConfig
from geoblanket.build.inputs import training_of_build
from geoblanket.build.record import read_record, record_path
from geoblanket.build.report import write_build_report
from geoblanket.cli.main import app
from geoblanket.errors import InputError
from geoblanket.mechanism.bundle.storage import load_bundle
from geoblanket.mobility.walks import scan_walks
from tests.blanket.made_findings import ABOUT, learnable, make_findings
from tests.blanket.worlds import square, wandering, write_world
from tests.promises import promise, promised

CONFIG = BuildConfig(epsilon=4.0, order=1, max_rows=25, max_places=20, gap=0.2, loss="straight")
BLANKETS: dict[str, Any] = {"epsilon": 4.0, "max_places": 20, "gap": 0.2, "loss": "straight"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    graph = square()
    return write_world(tmp_path_factory.mktemp("world"), graph, wandering(graph, side=12, walks=300, steps=12, seed=3))


@pytest.fixture(scope="module")
def bare(world: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of walks that say nothing of where they are from. Not to be changed."""
    out = tmp_path_factory.mktemp("bare") / "a.bundle"
    build_bundle(world[1], world[0], out, config=CONFIG, workers=1)
    return out


def stated(walks: Path, out: Path, statement: object) -> Path:
    """Copy walks, with a statement."""
    frame, about = scan_walks(walks)
    about = {name: value for name, value in about.items() if name not in {"kind", "version"}}
    write_table(frame, out, kind="walks", about=about | {"training": statement})
    return out


def found(out: Path, statement: Training | None) -> Path:
    about: dict[str, Any] = ABOUT | {"regions": None}
    about |= {} if statement is None else {"training": statement.as_json()}
    write_table(make_findings(learnable, hours=5, speeds=4, by="hour+speed"), out, kind="findings", about=about)
    return out


@pytest.mark.parametrize("training", [promised(), NOBODY])
def test_the_statement_of_the_walks_goes_into_bundle_record_and_report(
    world: tuple[Path, Path], tmp_path: Path, training: Training
) -> None:
    walks = stated(world[0], tmp_path / "w.parquet", training.as_json())
    out = tmp_path / "a.bundle"
    result = CliRunner().invoke(
        app,
        [
            *("build", "--walks", str(walks), "--roads", str(world[1]), "--out", str(out), "--epsilon", "4"),
            *(
                "--set",
                "order=1",
                "--set",
                "max_rows=25",
                "--set",
                "max_places=20",
                "--set",
                "gap=0.2",
                "--set",
                "loss=straight",
            ),
            *("--set", "workers=1", "--json"),
        ],
    )
    assert result.exit_code == 0, result.output
    assert load_bundle(out).training == training
    assert Training.parsed(json.loads(result.stdout)["training"]) == training
    assert Training.parsed(read_record(record_path(out)).training) == training
    page = unescape(write_build_report(out, world[1], tmp_path / "report").read_text())
    said = (
        "Nothing was learned from anyone's trips."
        if training == NOBODY
        else "are protected too: the mechanisms were learned with ε = 1, δ = 1e-06 for each vehicle."
    )
    assert result.stderr.count(said) == 1
    assert said in page
    assert (promise().proof() in page) == (training == promised())


def test_bare_walks_are_the_trips_of_people(bare: Path) -> None:
    assert Training.parsed(read_record(record_path(bare)).training) == load_bundle(bare).training == WALKS


def test_records_from_before_there_were_statements_are_read(bare: Path, tmp_path: Path) -> None:
    path = record_path(tmp_path / "a.bundle")
    values = json.loads(record_path(bare).read_text())
    for statement, is_read in ((None, True), ({"source": "everyone"}, False), ("walks", False)):
        changed = {name: value for name, value in values.items() if name != "training"}
        path.write_text(json.dumps(changed if statement is None else changed | {"training": statement}))
        if is_read:
            assert read_record(path).training == {"source": "not said"}
        else:
            with pytest.raises(InputError, match="not the record of a build"):
                read_record(path)


@pytest.mark.parametrize(
    "statement",
    [
        "private",
        None,
        {},
        {"source": "private"},
        {"source": "private", "promise": promise().as_json() | {"epsilon": 0.1}},
    ],
)
def test_walks_with_a_statement_that_cannot_be_true_are_refused(
    world: tuple[Path, Path], tmp_path: Path, statement: object
) -> None:
    walks = stated(world[0], tmp_path / "w.parquet", statement)
    with pytest.raises(InputError, match=r"w\.parquet: was changed after it was written"):
        scan_walks(walks)


def test_blankets_found_in_other_walks_take_the_promise_away(world: tuple[Path, Path], tmp_path: Path) -> None:
    walks = stated(world[0], tmp_path / "w.parquet", promised().as_json())
    for number, (training, claimed) in enumerate(
        [(None, WALKS), (WALKS, WALKS), (promised(4.0), WALKS), (promised(), promised()), (NOBODY, promised())]
    ):
        config = BuildConfig(**BLANKETS, findings=found(tmp_path / f"{number}.findings", training))
        result, why = training_of_build(walks, config)
        assert result == claimed
        assert (why is None) == (claimed != WALKS)
        if why is not None:
            assert "The walks were learned with ε = 1" in why
            assert "no more is claimed than 'learned without privacy for those in the traces'" in why


def test_findings_and_predictors_have_the_statement_of_their_walks(world: tuple[Path, Path], tmp_path: Path) -> None:
    walks = stated(world[0], tmp_path / "w.parquet", promised().as_json())
    options = DiscoveryOptions(by=["hour"], largest=1, smallest_group=40)
    discover(walks, world[1], options, out=tmp_path / "f", workers=1)
    assert Training.parsed(scan_findings(tmp_path / "f")[1]["training"]) == promised()
    discover(world[0], world[1], options, out=tmp_path / "bare", workers=1)
    assert "training" not in scan_findings(tmp_path / "bare")[1]
    for name, training in (("private", promised()), ("bare", None)):
        predictor = train(found(tmp_path / name, training), network=NetworkOptions(most_epochs=5)).predictor
        save_predictor(predictor, tmp_path / f"{name}.blanket")
        loaded = load_predictor(tmp_path / f"{name}.blanket")
        assert loaded.origin == predictor.origin
        assert loaded.origin.training == (training or WALKS)
        config = BuildConfig(**BLANKETS, predictor=tmp_path / f"{name}.blanket")
        assert training_of_build(walks, config)[0] == (training or WALKS)


def test_a_predictor_cannot_promise_more_than_its_noise_allows(tmp_path: Path) -> None:
    predictor = train(found(tmp_path / "f", promised()), network=NetworkOptions(most_epochs=5)).predictor
    origin = replace(predictor.origin, training=Training("private", replace(promise(), epsilon=0.5)))
    save_predictor(Predictor(predictor.encoding, predictor.network, origin), tmp_path / "p")
    with pytest.raises(InputError, match="cannot be true"):
        load_predictor(tmp_path / "p")
