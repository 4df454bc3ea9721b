"""Bundles as people build them: the demo's, and one of real streets and taxis, over every history there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from geoblanket.build.building import build_bundle
from geoblanket.build.config import BuildConfig
from geoblanket.mobility.map_matcher import MatchOptions
from geoblanket.mobility.matching import match_traces
from geoblanket.roads.importer import import_roads
from geoblanket.roads.simplification import in_largest_part
from geoblanket.traces.importing import import_traces
from tests.audit.second_verifier import check, parse
from tests.traces._files import REAL_DATA

ROOT = Path(__file__).parents[2]
PORTO = REAL_DATA / "porto"
CENTRE = (41.146, 41.158, -8.622, -8.604)
"""South, north, west and east, degrees."""


@pytest.mark.skipif(not PORTO.is_dir(), reason="the public Porto files are not in ../shared/data")
def test_a_bundle_of_the_centre_of_porto(tmp_path: Path) -> None:
    graph, _ = import_roads([PORTO / "nodes.csv", PORTO / "edges.csv"])
    south, north, west, east = CENTRE
    centre = graph.keep_nodes((graph.lat > south) & (graph.lat < north) & (graph.lon > west) & (graph.lon < east))
    centre.keep_nodes(in_largest_part(centre)).save(tmp_path / "roads")
    import_traces([PORTO / "train_sample.csv.gz"], tmp_path / "traces.parquet", format="porto")
    match_traces(
        tmp_path / "traces.parquet",
        tmp_path / "roads",
        tmp_path / "walks.parquet",
        spacing_m=250.0,
        options=MatchOptions(method="nearest"),
    )
    config = BuildConfig(
        epsilon=4.0, history_weights=(1.0, 0.5), order=2, max_places=5, max_rows=100, gap=0.1, compare=False
    )
    build_bundle(tmp_path / "roads", tmp_path / "walks.parquet", tmp_path / "a.bundle", config=config, workers=1)
    content = (tmp_path / "a.bundle").read_bytes()
    contents = parse(content)
    assert len(contents.places) >= 15
    assert max(len(table.past_weights) for table in contents.tables) == 2
    findings = check(content, slack_mm=0)
    assert findings.holds, findings


@pytest.mark.slow
def test_the_bundle_of_the_demo(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "docs/demo.py", str(tmp_path / "demo")], cwd=ROOT, check=True)
    for name in ("zones-4-w1.bundle", "zones-1-w1.bundle"):
        findings = check((tmp_path / "demo" / "bundles" / name).read_bytes(), slack_mm=0)
        assert findings.holds, findings
