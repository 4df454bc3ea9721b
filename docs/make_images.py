"""Make the pictures of the documentation anew: `.venv/bin/python docs/make_images.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

IMAGES = Path(__file__).parent / "images"

if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).with_name("geoblanket")), "demo", "--out", folder]
        subprocess.run(command, check=True)
        for path in sorted(Path(folder).glob("*.png")):
            picture = Image.open(path).convert("RGB")
            picture.thumbnail((1000, 1000), Image.Resampling.LANCZOS)
            # A palette makes the files five times smaller, and nobody sees it.
            picture.quantize(96, dither=Image.Dither.NONE).save(IMAGES / path.name, optimize=True)
