"""The predictor of blankets in any domain: from the group columns of a table of samples.

It is the network of `Predictor`, on other columns. A column of numbers has a border between each two of its values, 1
above and 0 below; one of texts has a column for each. A wrong prediction costs utility only, never privacy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from geoblanket._arguments import checked
from geoblanket._arrays import Ints
from geoblanket._display import Progress, short_repr, silent
from geoblanket.blanket.findings import decided_hypotheses, labels_of, split_by_group
from geoblanket.blanket.models import (
    FittedNetwork,
    Model,
    NetworkOptions,
    Scores,
    fit_network,
    fit_rate_by_order,
    score,
)
from geoblanket.blanket.predictor import PredictorInputs, blanket_lengths
from geoblanket.errors import ParameterError

__all__ = ["TablePredictor", "train_table"]


@dataclass(frozen=True, eq=False)
class TablePredictor:
    """Predicts how many context variables the blanket has; made by `train_table`.

    Examples
    --------
    With the `predictor` in the example of `train_table`:

    >>> predictor.lengths(pl.DataFrame({"age": [3, 11]})).tolist()
    [1, 2]
    """

    levels: Mapping[str, pl.Series]
    """The values that each group column had, ascending."""
    fitted: FittedNetwork
    scores: Mapping[str, Scores]
    """Measures on groups that were not learned from, of the `network` and of the baseline `m alone`."""

    def lengths(self, groups: pl.DataFrame) -> Ints:
        """Return the length of the blanket in each of some groups, from their columns."""
        if missing := [name for name in self.levels if name not in groups.columns]:
            raise ParameterError(f"The predictor needs the group columns {', '.join(self.levels)}. No {missing[0]}.")
        inputs = _inputs(self.levels, groups, np.ones(groups.height, np.int64))
        largest = self.fitted.encoding.largest
        probability = self.fitted(inputs.with_every_order(largest))
        return blanket_lengths(probability.reshape(-1, largest) > 0.5)

    def __repr__(self) -> str:
        accuracy = f"right on {self.scores['network'].accuracy:.0%} of new groups' hypotheses"
        return short_repr(self, f"blankets by {', '.join(self.levels)}", accuracy)


@checked
def train_table(
    findings: pl.DataFrame, *, network: NetworkOptions | None = None, seed: int = 0, progress: Progress = silent
) -> TablePredictor:
    """Train a predictor of blankets on what `discover_table` found, and judge it on groups that it has not seen.

    Parameters
    ----------
    findings
        `Discovery.findings` of a table with group columns.
    network, seed, progress
        Those of `train`.

    Raises
    ------
    ParameterError
        There are fewer than 10 groups with a decision.

    Examples
    --------
    >>> import numpy as np
    >>> import polars as pl
    >>> from geoblanket import SampleTable, discover_table, train_table
    >>> rng, age = np.random.default_rng(1), np.repeat(np.arange(20), 300)
    >>> v = rng.normal(size=(6000, 3))
    >>> x = v[:, 0] + (age >= 8) * v[:, 1] + rng.normal(size=6000)  # from age 8 on, V_2 counts too
    >>> table = SampleTable(x, list(v.T), groups=pl.DataFrame({"age": age}))
    >>> predictor = train_table(discover_table(table).findings)
    """
    names = findings.columns[2 : findings.columns.index("m")]
    levels = {name: findings[name].unique().sort() for name in names}
    decided = decided_hypotheses(findings)
    known = labels_of(decided, _inputs(levels, decided, decided["m"].cast(pl.Int64).to_numpy()))
    parts = split_by_group(known, seed=seed)
    options, largest = network or NetworkOptions(), int(known.inputs.m.max())
    fitted = fit_network(parts, largest=largest, options=options, seed=seed, progress=progress)
    models: dict[str, Model] = {"network": fitted, "m alone": fit_rate_by_order(parts)}
    scores = {name: score(parts.test.kept, model(parts.test.inputs)) for name, model in models.items()}
    return TablePredictor(levels, fitted, scores)


def _inputs(levels: Mapping[str, pl.Series], groups: pl.DataFrame, m: Ints) -> PredictorInputs:
    columns = []
    for name, known in levels.items():
        value, level = groups[name].to_numpy()[:, None], known.to_numpy()
        columns.append(value >= level[1:] if known.dtype.is_numeric() else value == level)
    nothing = np.full(len(m), -1)
    return PredictorInputs(nothing, nothing, nothing, m, np.hstack(columns).astype(np.float64))
