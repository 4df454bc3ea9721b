from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geoblanket.cli.main import app
from geoblanket.errors import InputError, OutputError, ParameterError
from geoblanket.roads.graph import RoadGraph
from tests.roads.samples import osm_xml

runner = CliRunner()


@pytest.fixture
def osm(tmp_path: Path) -> Path:
    path = tmp_path / "some.osm"
    path.write_text(osm_xml([([1, 2, 3, 4], {}), ([2, 5, 6], {}), ([7, 8], {})]))
    return path


def run(*arguments: object) -> str:
    result = runner.invoke(app, ["roads", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_import_tells_what_it_made_and_dropped(osm: Path, tmp_path: Path) -> None:
    out, picture = tmp_path / "some.roads", tmp_path / "some.png"
    result = json.loads(run("import", osm, "--out", out, "--json", "--picture", picture))
    graph = RoadGraph.load(out)
    assert (result["nodes"], result["edges"]) == (graph.node_count, graph.edge_count) == (4, 6)
    assert result["length_km"] == pytest.approx(graph.length_m.sum() / 1000, abs=1e-3)
    assert result["dropped"]["unconnected_nodes"] == 2
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_import_keeps_all_where_asked(osm: Path, tmp_path: Path) -> None:
    result = json.loads(run("import", osm, "-o", tmp_path / "some.roads", "--set", "keep_all=true", "--json"))
    assert result["nodes"] == 6
    assert "unconnected_nodes" not in result["dropped"]


def test_tables_for_people(osm: Path, tmp_path: Path) -> None:
    out = tmp_path / "some.roads"
    imported = run("import", osm, "--out", out)
    assert "unconnected nodes" in imported
    told = run("info", out)
    assert "residential" in told
    assert RoadGraph.load(out).identity[:16] in told


def test_info_as_json(osm: Path, tmp_path: Path) -> None:
    out = tmp_path / "some.roads"
    run("import", osm, "--out", out)
    about = json.loads(run("info", out, "--json"))
    assert about["bytes"] == out.stat().st_size
    assert about["km_by_class"].keys() == {"residential"}
    assert about["identity"] == RoadGraph.load(out).identity


def test_export(osm: Path, tmp_path: Path) -> None:
    out = tmp_path / "some.roads"
    run("import", osm, "--out", out)
    run("export", out, "--to", tmp_path / "roads.geojson")
    run("export", out, "--to", tmp_path / "roads.parquet")
    assert len(json.loads((tmp_path / "roads.geojson").read_text())["features"]) == 6
    with pytest.raises(ParameterError, match="must end in"):
        run("export", out, "--to", tmp_path / "roads.shp")


def test_nothing_is_written_when_the_input_or_an_output_is_bad(osm: Path, tmp_path: Path) -> None:
    out = tmp_path / "some.roads"
    with pytest.raises(InputError):
        run("import", tmp_path / "nowhere.osm", "--out", out)
    with pytest.raises(OutputError):
        run("import", osm, "--out", out, "--picture", tmp_path / "no folder" / "a.png")
    with pytest.raises(ParameterError):
        run("import", osm, "--out", out, "--picture", tmp_path / "a.docx")
    with pytest.raises(InputError, match="is not a road graph"):
        run("info", osm)
    assert [path.name for path in tmp_path.iterdir()] == ["some.osm"]
