"""Make the pictures of the tour anew, by its own commands: `.venv/bin/python docs/make_images.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

IMAGES = Path(__file__).parent / "images"
COMMANDS = (
    "city --out city --trips 1000 --picture city.png",
    "roads import city/roads.osm.pbf --out city.roads",
    "roads zones city.roads --spacing 150 --max-places 60 --picture zones.png",
)


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        for command in COMMANDS:
            subprocess.run([Path(sys.executable).with_name("geoblanket"), *command.split()], check=True, cwd=folder)
        for path in sorted(Path(folder).glob("*.png")):
            picture = Image.open(path).convert("RGB")
            picture.thumbnail((1000, 1000), Image.Resampling.LANCZOS)
            # A palette makes the files five times smaller, and nobody sees it.
            picture.quantize(96, dither=Image.Dither.NONE).save(IMAGES / path.name, optimize=True)
