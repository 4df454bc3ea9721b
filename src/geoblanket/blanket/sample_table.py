"""A table of samples in any domain: a secret, its context variables, and what groups them.

Walks are another source of samples (`LaggedWalks`): discovery asks both for the samples of each group, and for x, y and
z of a hypothesis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Ints
from geoblanket._display import counted, short_repr
from geoblanket.blanket.findings import RESULT_SCHEMA
from geoblanket.blanket.groups import Samples
from geoblanket.errors import ParameterError


@dataclass(frozen=True, eq=False)
class TableGroups:
    """The groups of a table of samples: the different rows of its group columns."""

    rows: pl.DataFrame

    @property
    def name(self) -> str:
        """The columns' names with + between them."""
        return "+".join(self.rows.columns)

    def __len__(self) -> int:
        return self.rows.height

    def labels(self) -> pl.DataFrame:
        """Return what defines each group."""
        return self.rows


class SampleTable:
    """Samples of a secret and its context variables, in any domain, and what groups them.

    Parameters
    ----------
    secret
        X of each sample: numbers, or vectors, shape (n,) or (n, dimensions).
    context
        V_1, V_2, ... of each sample, in the order in which Algorithm 1 takes them into the blanket; two or more.
    groups
        Columns that define groups: those of like samples are tested together. One group of all if None.

    Examples
    --------
    >>> import numpy as np
    >>> from geoblanket import SampleTable
    >>> series = np.random.default_rng(1).normal(size=(500, 3)).cumsum(axis=1)
    >>> table = SampleTable(series[:, 2], [series[:, 1], series[:, 0]])
    >>> table
    <SampleTable: 500 samples, 2 context variables, 1 group>
    """

    @checked
    def __init__(
        self, secret: npt.ArrayLike, context: Sequence[npt.ArrayLike], *, groups: pl.DataFrame | None = None
    ) -> None:
        self.secret = _vectors(secret, "The secret")
        self.context = [_vectors(part, f"V_{number}") for number, part in enumerate(context, start=1)]
        labels = pl.DataFrame({"all": ["all"] * len(self.secret)}) if groups is None else groups
        lengths = [len(self.secret), *map(len, self.context), labels.height]
        if len(self.context) < 2 or len(set(lengths)) > 1:
            raise ParameterError(
                "A table of samples needs two context variables or more, and as many rows in each column. Got "
                f"{len(self.context)} variable(s), and columns of {', '.join(map(str, sorted(set(lengths))))} rows."
            )
        if taken := {"group", "by", *RESULT_SCHEMA} & set(labels.columns):
            raise ParameterError(f"A group column must not be called {min(taken)}: findings have such a column.")
        self.grouping = TableGroups(labels.unique().sort(labels.columns))
        numbered = self.grouping.rows.with_row_index("group")
        joined = labels.join(numbered, on=labels.columns, how="left", nulls_equal=True, maintain_order="left")
        self._group = joined["group"].to_numpy().astype(np.int64)

    def samples(self, grouping: TableGroups, *, m: int, length: int) -> Samples:  # noqa: ARG002
        """Return the rows of each group; the same for all orders."""
        held = np.bincount(self._group, minlength=len(grouping))
        nowhere = np.full(len(grouping), np.nan)
        order = np.argsort(self._group, kind="stable")
        return Samples(order, np.append(0, np.cumsum(held)), nowhere, nowhere, 0)

    def hypothesis(self, steps: Ints, *, m: int, length: int, block: bool) -> tuple[Floats, Floats, Floats]:  # noqa: ARG002
        """Return x, y and z of the hypothesis X ⟂ V_{m+1} | V_1, ..., V_m in some rows; all later V with `block`."""
        later = self.context[m:] if block else self.context[m : m + 1]
        y, z = (np.hstack([part[steps] for part in parts]) for parts in (later, self.context[:m]))
        return self.secret[steps], y, z

    def __repr__(self) -> str:
        variables = counted(len(self.context), "context variable")
        return short_repr(self, counted(len(self.secret), "sample"), variables, counted(len(self.grouping), "group"))


def _vectors(values: npt.ArrayLike, name: str) -> Floats:
    array = np.asarray(values, np.float64)
    if array.ndim not in (1, 2) or not array.size or not np.isfinite(array).all():
        raise ParameterError(
            f"{name} must be finite numbers, of one or two dimensions, a row for each sample. Leave out rows with "
            f"missing values. Got the shape {array.shape}."
        )
    return array.reshape(len(array), -1)
