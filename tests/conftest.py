"""What holds for the whole suite.

Hypothesis has no deadlines, because machines are noisy, and takes the same examples every time; `make test-all` looks
for new ones instead (`--hypothesis-profile=search`). Ctrl-C works even where the suite runs in the background of a
shell, which has it ignored, there and in all processes that are started: some tests send it. Device keys are made in a
folder of the run, never in the home of who runs it.

Linear algebra has one thread, here and in all processes that are started: `make test` has a process for each core, the
matrices are small, and threads that wait for each other take several times as long. Tests whose point is that the
number of threads makes no difference ask for theirs (`threadpool_limits`).

Processes that tests start share their compiled modules in a folder of the run, also where the environment forbids
`__pycache__`: each would compile the package again. With pytest-xdist, files are handed out in the order of the
folders. By default those with the fewest tests come last, and among these are the longest.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from geoblanket.release.device_key import KEY_FILE_VARIABLE

if TYPE_CHECKING:
    from tests.fuzz.seeds import Seeds

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # read when NumPy, SciPy and scikit-learn are imported
    os.environ.setdefault(name, "1")

settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("same")

signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


@pytest.fixture(scope="session", autouse=True)
def device_key_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the key of this device, here and in all processes that are started, in a folder of the run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, KEY_FILE_VARIABLE, str(tmp_path_factory.mktemp("key") / "device.key"))
        yield


@pytest.fixture(scope="session", autouse=True)
def compiled_modules_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the processes that are started compile the package once."""
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("PYTHONDONTWRITEBYTECODE"):
            patch.delitem(os.environ, "PYTHONDONTWRITEBYTECODE")
            patch.setitem(os.environ, "PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("compiled")))
        yield


@pytest.fixture(scope="session")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Seeds:
    """A valid file of each kind."""
    from tests.fuzz.seeds import make_seeds

    return make_seeds(tmp_path_factory.mktemp("seeds"))


@pytest.fixture
def fixed_randomness(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes in the place of the operating system's each time, so that what is tested by chance never fails."""
    import numpy as np

    monkeypatch.setattr(os, "urandom", np.random.default_rng(20_240_701).bytes)
