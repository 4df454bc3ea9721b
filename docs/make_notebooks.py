"""Run the notebooks and store their outputs: `.venv/bin/python docs/make_notebooks.py [NAME.ipynb ...]`.

Pictures get a palette, a third of the size: a repository keeps every one of them. Reports are real draws, so each run
gives other outputs.
"""

from __future__ import annotations

import os
import sys
from base64 import b64decode, b64encode
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image

from geoblanket.release.device_key import KEY_FILE_VARIABLE

NOTEBOOKS = Path(__file__).parent / "notebooks"
COLOURS = 256
LARGEST_BYTES = 700_000
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def with_palette(png: str) -> str:
    """Return a picture in base64 with few colours."""
    packed = BytesIO()
    picture = Image.open(BytesIO(b64decode(png))).convert("RGB")
    picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(packed, "PNG", optimize=True)
    return b64encode(packed.getvalue()).decode("ascii")


def run(path: Path) -> None:
    """Run one notebook in an empty folder, with a device key of its own, and store it."""
    notebook: Any = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as folder:
        os.environ[KEY_FILE_VARIABLE] = str(Path(folder) / "device.key")
        NotebookClient(
            notebook,
            kernel_name=KERNEL["name"],
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        ).execute()
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    noisy = [output for output in outputs if output.get("name") == "stderr"]
    if noisy:
        raise SystemExit(f"{path}: something was written to stderr:\n{noisy[0].text}")
    for output in outputs:
        if "image/png" in output.get("data", {}):
            output.data["image/png"] = with_palette(output.data["image/png"])
    nbformat.write(notebook, path)
    if path.stat().st_size > LARGEST_BYTES:
        raise SystemExit(f"{path} has more than {LARGEST_BYTES:,} bytes: draw less, or smaller.")


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(path.name for path in NOTEBOOKS.glob("*.ipynb")):
        run(NOTEBOOKS / name)
