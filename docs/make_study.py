"""Run the study on three cities and renew docs/tables/blankets.md: `.venv/bin/python docs/make_study.py [FOLDER]`.

The data lie in ../shared/data, beside the project. Everything is kept in FOLDER, if one is given, and an interrupted
run goes on there; only figures and numbers about groups of 200 samples or more come into the documentation, no traces.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from PIL import Image

from geoblanket import __version__
from geoblanket._display import city_name

DOCS = Path(__file__).parent
DATA = DOCS.parents[1] / "shared" / "data"
FIGURES = ("p-by-region", "p-by-speed", "p-by-hour", "rejections", "correlations")


class Sample(NamedTuple):
    """A city's files, and the options that its traces need."""

    roads: tuple[str, ...]
    traces: str
    options: tuple[str, ...]
    interval_s: int = 30
    """Between the steps of its walks, seconds."""


SAMPLES = {
    "porto": Sample(("porto_drive_2022-11.osm.pbf",), "train_sample.csv.gz", ("--format", "porto")),
    "rome": Sample(
        ("nodes.csv", "edges.csv.gz"),
        "trips_sample.csv.gz",
        ("--format", "table", "--columns", "trip=trip,time=time,lat=lat,lon=lon"),
    ),
    "sanfrancisco": Sample(
        ("nodes.csv", "edges.csv.gz"), "cabspotting_421_taxis.tar.xz", ("--format", "cabspotting"), interval_s=60
    ),
}


def geoblanket(*words: object) -> str:
    """Run a command; return what it prints."""
    command = [str(Path(sys.executable).with_name("geoblanket")), *map(str, words), "--overwrite"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def run(city: str, folder: Path) -> dict[str, Any]:
    """Import, match and study one city's sample; return what the study says."""
    sample, data = SAMPLES[city], DATA / city
    roads, traces, walks = (folder / f"{city}{ending}" for ending in (".roads", "-traces.parquet", "-walks.parquet"))
    geoblanket("roads", "import", *(data / name for name in sample.roads), "--out", roads)
    geoblanket("traces", "import", *sample.options, data / sample.traces, "--out", traces)
    geoblanket("match", "--traces", traces, "--roads", roads, "--interval", sample.interval_s, "--out", walks)
    words = ("--walks", walks, "--roads", roads, "--set", f"traces={traces}", "--regions", city, "--out", folder / city)
    geoblanket("blanket", "study", *words, "--set", f"title=Markov blankets: the {city_name(city)} sample")
    result: dict[str, Any] = json.loads((folder / city / "study.json").read_text(encoding="utf-8"))
    return result


def shrink(picture: Path, target: Path) -> None:
    """Write a picture for the documentation: at most 1,100 pixels wide, of few colours."""
    image = Image.open(picture).convert("RGB")
    image.thumbnail((1100, 1100), Image.Resampling.LANCZOS)
    # The usual choice of palette would merge colours that cover little, such as those of a legend.
    image.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(target, optimize=True)


def section(study: dict[str, Any]) -> str:
    """Return the sentences and the table of claims of one city, as Markdown."""
    sentences = "\n".join(f"- {sentence}" for sentence in study["summary"])
    rows = "\n".join(f"| {' | '.join(cells(claim))} |" for claim in study["claims"])
    made = f"Made with geoblanket {__version__}: `docs/make_study.py`."
    header = "| claim | the paper | ours | 95 % interval | verdict |\n|---|---|---|---|---|"
    return f"{made}\n\n{sentences}\n\n{header}\n{rows}\n"


def cells(claim: dict[str, Any]) -> tuple[str, ...]:
    """Return what the page shows of a claim."""
    ours = "–" if claim["measured"] is None else f"{claim['measured']:.3g}"
    interval = "–" if None in claim["interval"] else "{:.3g} to {:.3g}".format(*claim["interval"])
    return claim["topic"].replace("|", "\\|"), claim["paper"], ours, interval, claim["verdict"]


def renew(page: Path, studies: dict[str, dict[str, Any]]) -> None:
    """Replace the parts of the page that come from the studies."""
    text = page.read_text(encoding="utf-8")
    for city, study in studies.items():
        begin, end = f"<!-- {city}: made by make_study.py -->", f"<!-- {city}: end -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{section(study)}{end}{after}"
    page.write_text(text, encoding="utf-8")


def main(folder: Path) -> None:
    """Run the studies and renew the page and its figures."""
    folder.mkdir(parents=True, exist_ok=True)
    studies = {city: run(city, folder) for city in SAMPLES}
    for city in SAMPLES:
        for name in FIGURES:
            picture = folder / city / f"{name}.png"
            if picture.exists():
                shrink(picture, DOCS / "images" / f"study-{city}-{name}.png")
    renew(DOCS / "tables" / "blankets.md", studies)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", metavar="FOLDER")
    with TemporaryDirectory() as temporary:
        main(parser.parse_args().folder or Path(temporary))
