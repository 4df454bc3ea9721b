"""The wheel, installed in clean environments: alone, and with each extra alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.release.worlds import save_certain
from tests.test_docs import BLOCK, console_parts, run_console

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
LARGEST_LIGHT_MB = 100
LARGEST_DEMO_MB = 700
EXTRAS = ("city", "service", "gateway", "private", "cluster", "signing", "networkx")
COMMANDS = {
    "city": """
        roads import city/roads.osm.pbf --out own.roads
        roads zones own.roads --picture zones.png
        traces import --format porto city/porto.csv --out own.traces
        match --traces own.traces --roads own.roads --spacing 400 --interval 30 --out own.walks
        blanket discover --walks own.walks --roads own.roads --by speed,region --set largest=2 --out findings.parquet
        blanket train --findings findings.parquet --out own.blanket
        build --roads own.roads --walks own.walks --out own.bundle --epsilon 2 --set max_places=12 --report r
        verify own.bundle
        show own.bundle --picture bundle.png
        perturb own.bundle --walks own.walks --roads own.roads --out released.parquet
        model --roads own.roads --walks own.walks --out own.model
        lattice --roads own.roads --epsilon 4 --out own.lattice
        perturb own.lattice --traces own.traces --out trips.parquet
        track own.lattice trips.parquet --model own.model --truth own.traces --out tracked.parquet
        sample --model own.model --roads own.roads --out drawn.parquet --set trips=200
        plan --roads own.roads --sure 90%
        roads export own.roads --to roads.parquet
    """,
    "private": "learn --walks walks.parquet --roads city.roads --epsilon-train 2 --out private.model",
}
"""What each extra is for, with files of a small city at hand."""


class Environment:
    """A virtual environment with the wheel and some extras, and a folder to work in."""

    def __init__(self, folder: Path, work: Path, wheel: Path, extras: str) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        self.bin, self.work = folder / "bin", work
        wanted = f"geoblanket[{extras}] @ {wheel.as_uri()}"
        pip = [str(self.bin / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), wanted], check=True)
        (self.packages,) = folder.glob("lib/python*/site-packages")

    @property
    def variables(self) -> dict[str, str]:
        """Those of the test, without what would lead to other packages."""
        return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(self, *words: str, given: str = "", code: int = 0) -> str:
        """Run a command of geoblanket; return what it printed, on stderr if it was to fail."""
        done = self._run("geoblanket", *words, given=given)
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    def python(self, code: str) -> str:
        """Run Python code; return what it printed."""
        done = self._run("python", "-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _run(self, program: str, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.bin / program, *words],
            input=given,
            cwd=self.work,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution, as whoever gets that would build it."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    assert list(folder.glob("*.tar.gz"))
    return built


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of a small city: roads, traces, walks, a bundle with zones."""
    folder = tmp_path_factory.mktemp("files")
    for line in (
        "city --out city --trips 1000",
        "roads import city/roads.osm.pbf --out city.roads",
        "traces import --format porto city/porto.csv --out traces.parquet",
        "match --traces traces.parquet --roads city.roads --spacing 400 --interval 30 --out walks.parquet",
    ):
        subprocess.run([sys.executable, "-m", "geoblanket", *line.split()], cwd=folder, check=True, capture_output=True)
    save_certain(folder / "zones.bundle", epsilon=2.0)
    return folder


@pytest.fixture
def environment(request: pytest.FixtureRequest, tmp_path: Path, wheel: Path, files: Path) -> Iterator[Environment]:
    shutil.copytree(files, tmp_path / "work")
    yield Environment(tmp_path / "venv", tmp_path / "work", wheel, request.param)
    shutil.rmtree(tmp_path / "venv")  # hundreds of megabytes


def megabytes(folder: Path, *, without: tuple[str, ...] = ()) -> float:
    """The size of all files in a folder, in millions of bytes."""
    files = (file for file in folder.rglob("*") if not file.relative_to(folder).parts[0].startswith(without or "\0"))
    return sum(file.lstat().st_size for file in files if file.is_file()) / 1e6


@pytest.mark.parametrize("environment", [""], indirect=True)
def test_wheel_alone_is_enough_for_a_device(environment: Environment) -> None:
    tools = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
    size = megabytes(environment.packages, without=tools)
    assert size <= LARGEST_LIGHT_MB, f"{size:.1f} MB"
    assert str(environment.packages) in environment.python("import geoblanket; print(geoblanket.__file__)")
    listed = environment.run("--help")
    assert all(name in listed for name in ("build", "evaluate", "serve", "learn", "perturb", "track"))
    environment.run("lattice", "--area", "41.13,-8.70,41.19,-8.55", "--epsilon", "4", "--out", "held.bundle")
    environment.run(
        "lattice", "--area", "41.13,-8.70,41.19,-8.55", "--epsilon", "4", "--set", "hold_m=0", "--out", "plain.bundle"
    )
    for name in ("held", "plain", "zones"):
        environment.run("verify", f"{name}.bundle")
        environment.run("show", f"{name}.bundle")
        environment.run("ledger", "create", f"{name}.ledger", "--budget", "480", "--window", "3600")
        fix = json.dumps({"lat": 41.15, "lon": -8.61, "time": time.time()})
        report = environment.run("perturb", f"{name}.bundle", "--stream", "--ledger", f"{name}.ledger", given=fix)
        environment.run("ledger", "verify", f"{name}.ledger")
        assert json.loads(environment.run("ledger", "show", f"{name}.ledger", "--json"))["reports"] == 1
        assert json.loads(environment.run("track", f"{name}.bundle", "--stream", given=report))["radius_m"] > 0
    assert "pip install 'geoblanket[city]'" in environment.run("roads", "zones", "city.roads", code=1)
    assert "pip install 'geoblanket[service]'" in environment.run("serve", "zones.bundle", code=1)


@pytest.mark.parametrize("environment", EXTRAS, indirect=True)
def test_extra_alone_is_enough_for_its_commands(environment: Environment, request: pytest.FixtureRequest) -> None:
    extra = request.node.callspec.params["environment"]
    for line in COMMANDS.get(extra, "").strip().splitlines():
        environment.run(*line.split())
    if extra in CODE:
        environment.python(CODE[extra])
    if extra == "service":
        check_service(environment, "serve", "zones.bundle", "--roads", "city.roads")
    if extra == "gateway" and " gateway " in environment.run("--help"):
        environment.run("gateway", "--help")
        environment.python(ALL_MODULES.format("gateway"))


@pytest.mark.parametrize("environment", ["city,service"], indirect=True)
def test_environment_of_the_demonstration_is_not_too_large(environment: Environment) -> None:
    size = megabytes(environment.packages.parents[2])
    assert size <= LARGEST_DEMO_MB, f"{size:.0f} MB"


@pytest.mark.parametrize("environment", ["city,service"], indirect=True)
def test_the_readme_alone_leads_to_a_report_a_plan_a_mechanism_and_the_page(
    environment: Environment, tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    environment.work = tmp_path / "own"
    blocks = BLOCK.findall((ROOT / "README.md").read_text())
    assert ("sh", "pip install 'geoblanket[city,service]'\n") in blocks
    for language, block in blocks:
        if language == "console":
            run_console(console_parts(block), environment.work, programs=environment.bin)
    (served,) = (block for language, block in blocks if language == "text")
    check_service(environment, *served.split()[1:])


ALL_MODULES = """
import geoblanket.{0} as room, importlib, pkgutil
for module in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
    importlib.import_module(module.name)
"""
CODE = {
    "city": "\n".join(
        ALL_MODULES.format(room)
        for room in ("traces", "roads", "mobility", "city", "blanket", "loss", "mechanism", "build", "release",
                     "tracking", "planning", "evaluate", "study")
    ),
    "service": ALL_MODULES.format("service"),
    "private": ALL_MODULES.format("learning"),
    "cluster": """
import subprocess, sys
from pathlib import Path
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
        line = "blanket discover --walks walks.parquet --roads city.roads --set largest=1 --out found.parquet --cluster"
        geoblanket = Path(sys.executable).with_name("geoblanket")
        subprocess.run([geoblanket, *line.split(), cluster.scheduler_address], check=True)
""",
    "signing": """
from pathlib import Path
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from geoblanket import Trust, load_bundle
from geoblanket.mechanism import sign_bundle
key = Ed25519PrivateKey.generate()
Path("a.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
Path("a.pem").write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
sign_bundle("zones.bundle", "a.key")
assert load_bundle("zones.bundle", trust=Trust(public_key="a.pem")).signed
""",
    "networkx": """
from geoblanket import RoadGraph
assert len(RoadGraph.load("city.roads").to_networkx()) > 100
""",
}  # fmt: skip


def check_service(environment: Environment, *words: str) -> None:
    """A service that shows a city answers, and stops."""
    with subprocess.Popen(
        [environment.bin / "geoblanket", *words, "--port", "0"],
        cwd=environment.work,
        env=environment.variables,
        stderr=subprocess.PIPE,
        text=True,
    ) as service:
        try:
            assert service.stderr is not None
            address = next(found[0] for line in service.stderr if (found := re.search(r"http://[\d.:]+", line)))
            for path in ("/", "/v1/bundles"):
                with urllib.request.urlopen(address + path, timeout=120) as answer:  # noqa: S310
                    assert answer.status == 200
        finally:
            service.terminate()
