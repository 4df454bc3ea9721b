"""How long a prediction of a blanket takes, by table and by network, against scikit-learn on the same weights.

Run `python -m benchmarks.prediction`. Each line is a process of its own; its imports and what it loads are not timed.
A figure is the median over blocks of calls, and the least block beside it: on a busy machine the two differ.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks._measure import Measured, measure, show

BLOCKS = 400
CALLS = 50
REGIONS = 20
LARGEST = 5
UNITS = (64, 32)


def prepare(path: Path) -> None:
    """Write a predictor for 24 hours, 24 speeds and 20 regions; drawn weights, of whose answers half are "reject"."""
    from geoblanket.blanket.predictor import Encoding, Network, Origin, Predictor, PredictorInputs, save_predictor

    rng = np.random.default_rng(4)
    cells = np.indices((24, 24, REGIONS)).reshape(3, -1)
    inputs = PredictorInputs(cells[0], 5 * cells[1], cells[2], np.ones(cells.shape[1], np.int64))
    encoding = Encoding.learned(inputs, largest=LARGEST)
    sizes = (encoding.width, *UNITS, 1)
    weights = tuple(rng.normal(size=(a, b)) / np.sqrt(a / 4) for a, b in pairwise(sizes))
    biases = tuple(rng.normal(size=size) for size in sizes[1:])
    plain = Network(weights, biases)
    middle = np.median(plain.after_first(encoding.rows(inputs) @ weights[0] + biases[0]))
    network = Network(weights, (*biases[:-1], biases[-1] - middle))
    origin = Origin("hour+speed+region", 30.0, "UTC", "null", "analytic", 0.05, "all", len(inputs), 0)
    save_predictor(Predictor(encoding, network, origin), path)


def questions() -> list[dict[str, float]]:
    """Return cells to ask about, the same each time."""
    rng = np.random.default_rng(0)
    return [
        {"hour": int(rng.integers(24)), "speed_mph": float(rng.uniform(0, 120)), "region": int(rng.integers(REGIONS))}
        for _ in range(CALLS)
    ]


def microseconds(ask: Callable[[], object], answers: int) -> tuple[float, float]:
    """Return median and least microseconds for one of `answers` that a call of `ask` gives."""
    ask()
    seconds = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        ask()
        seconds.append(time.perf_counter() - start)
    return 1e6 * float(np.median(seconds)) / answers, 1e6 * min(seconds) / answers


def table(path: Path) -> tuple[float, float]:
    """Time single look-ups in the table."""
    from geoblanket.blanket.predictor import load_predictor

    predictor, asked = load_predictor(path), questions()
    return microseconds(lambda: [predictor.length(**cell) for cell in asked], CALLS)  # type: ignore[arg-type]


def table_at_once(path: Path) -> tuple[float, float]:
    """Time look-ups of 10,000 cells at once."""
    from geoblanket.blanket.predictor import load_predictor

    predictor, rng = load_predictor(path), np.random.default_rng(0)
    hour, region = rng.integers(0, 24, 10_000), rng.integers(0, REGIONS, 10_000)
    speed_mph = rng.uniform(0, 120, 10_000)
    return microseconds(lambda: predictor.lengths(hour=hour, speed_mph=speed_mph, region=region), 10_000)


def network_one_order(path: Path) -> tuple[float, float]:
    """Time the network on one hypothesis: cells whose blanket is 1, where Algorithm 2 asks once."""
    from geoblanket.blanket.predictor import load_predictor

    predictor = load_predictor(path)
    asked = [cell for cell in questions() if predictor.length(**cell) == 1]  # type: ignore[arg-type]
    return microseconds(lambda: [predictor.length_by_network(**cell) for cell in asked], len(asked))  # type: ignore[arg-type]


def network(path: Path) -> tuple[float, float]:
    """Time Algorithm 2 by the network on all cells."""
    from geoblanket.blanket.predictor import load_predictor

    predictor, asked = load_predictor(path), questions()
    return microseconds(lambda: [predictor.length_by_network(**cell) for cell in asked], CALLS)  # type: ignore[arg-type]


def scikit_learn(path: Path) -> tuple[float, float]:
    """Time scikit-learn's `predict_proba` with the same weights, on rows that are encoded already."""
    from sklearn.neural_network import MLPClassifier

    from geoblanket.blanket.predictor import PredictorInputs, load_predictor

    predictor = load_predictor(path)
    cells = [(cell["hour"], 5 * (cell["speed_mph"] // 5), cell["region"], 1) for cell in questions()]
    rows = predictor.encoding.rows(PredictorInputs(*np.array(cells, np.int64).T))
    peer = MLPClassifier(UNITS, max_iter=1)
    peer.partial_fit(rows, np.arange(len(rows)) % 2 == 0, classes=[False, True])
    peer.coefs_, peer.intercepts_ = list(predictor.network.weights), list(predictor.network.biases)
    first = cells[0]
    ours = predictor.probabilities(hour=first[0], speed_mph=first[1], region=first[2])[0]  # type: ignore[arg-type]
    assert abs(peer.predict_proba(rows[:1])[0, 1] - ours) < 1e-12
    return microseconds(lambda: [peer.predict_proba(row[None]) for row in rows], len(rows))


def load(path: Path) -> tuple[float, float]:
    """Time loading the file, every hash checked."""
    from geoblanket.blanket.predictor import load_predictor

    return microseconds(lambda: load_predictor(path), 1)


def main() -> None:
    """Print microseconds and peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        prepare(path)
        size = path.stat().st_size
        found = {
            "table, one at a time": measure(table, path),
            "table, 10,000 at once": measure(table_at_once, path),
            "network, one hypothesis": measure(network_one_order, path),
            "network, Algorithm 2 to its end": measure(network, path),
            "scikit-learn, one hypothesis": measure(scikit_learn, path),
            f"load the file ({size / 1024:,.0f} kB)": measure(load, path),
        }
    peer = found["scikit-learn, one hypothesis"]

    def row(name: str, one: Measured) -> tuple[str, ...]:
        median, least = one.result
        ratio = "" if name.startswith(("load", "scikit")) else f"{peer.result[0] / median:,.0f} ×"
        return name, f"{median:,.2f}", f"{least:,.2f}", ratio, f"{one.peak_mb:,.0f} MB"

    show(
        f"Predicting a blanket: 24 hours × 24 speeds × {REGIONS} regions, Γ = {LARGEST}",
        ("by", "µs, median", "µs, least", "scikit-learn against it", "peak memory"),
        [row(name, one) for name, one in found.items()],
    )


if __name__ == "__main__":
    main()
