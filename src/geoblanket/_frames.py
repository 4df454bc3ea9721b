"""Data frames where tables are taken: of Polars, of pandas, or of any package with the Arrow stream interface.

A function that reads a table from a file reads a frame in the same way: the frame is written to a file that nobody but
the user can read, with what such files say of themselves, and the file is removed when the function ends. So a frame
passes every check that a file does, is handed to other processes, and may be larger than memory if it is lazy.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import polars as pl

from geoblanket._arguments import wrong_type
from geoblanket._tables import listed_columns
from geoblanket.errors import GeoblanketError, InputError, OutputError

AnyFrame: TypeAlias = Any
"""A data frame of Polars (lazy or not) or of pandas, or an object with the Arrow stream interface
(`__arrow_c_stream__`); and such a frame with its description (`Walks`). Its kind is found when it is read."""


@dataclass(frozen=True, eq=False)
class DescribedFrame:
    """A data frame with the description that a file of its rows would carry."""

    frame: AnyFrame


FRAME: Final = Path("data frame")
"""What stands for the name of a file in messages."""

FrameWriter: TypeAlias = Callable[[Any, Path], None]
"""Writes a frame as the table that a function reads; raises InputError or ParameterError if it is none."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def is_path(value: object) -> bool:
    """Whether a value names a file."""
    return isinstance(value, str | os.PathLike)


def is_frame(value: object) -> bool:
    """Whether a value is a data frame that `to_polars` reads."""
    return isinstance(value, pl.DataFrame | pl.LazyFrame) or _is_pandas(value) or hasattr(value, "__arrow_c_stream__")


def takes_frames(**writers: FrameWriter | None) -> Callable[[_Function], _Function]:
    """Let a function that reads tables from files take data frames as well.

    Parameters
    ----------
    writers
        How a frame is written as a table, by the name of the function's parameter; None: the function reads it itself.

    Raises
    ------
    ParameterError
        If something is given that is neither a path nor a frame.
    """

    def decorate(function: _Function) -> _Function:
        parameters = signature(function)

        @wraps(function)
        def with_files(*arguments: Any, **options: Any) -> Any:
            bound = parameters.bind(*arguments, **options)
            given = bound.arguments
            with ExitStack() as files:
                for name in writers.keys() & given.keys():
                    value, write = given[name], writers[name]
                    if is_path(value) or (value is None and parameters.parameters[name].default is None):
                        continue
                    if not is_frame(value) and not isinstance(value, DescribedFrame):
                        raise wrong_type(function, name, value, ["path", "data frame"])
                    if write is not None:
                        given[name] = files.enter_context(_as_file(value, write))
                return function(*bound.args, **bound.kwargs)

        return with_files  # type: ignore[return-value]  # it is called as the function is

    return decorate


@contextmanager
def _as_file(value: object, write: FrameWriter) -> Iterator[Path]:
    """Write a frame to a temporary file; errors within the block name the frame instead of that file."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="geoblanket-")
    except OSError as error:
        raise OutputError(f"There is no room for a temporary file ({error.strerror or error}). Set TMPDIR.") from error
    with folder:
        path = Path(folder.name) / "frame.parquet"
        try:
            write(value, path)
            yield path
        except GeoblanketError as error:
            error.args = tuple(arg.replace(f"{path}", f"{FRAME}") if type(arg) is str else arg for arg in error.args)
            if isinstance(error, InputError) and error.path == path:
                error.path = FRAME
            raise


def conformed(
    frame: pl.LazyFrame, schema: Mapping[str, pl.DataType], *, kind: str, optional: Collection[str] = ()
) -> pl.LazyFrame:
    """Return the columns of a schema, in its order and with its types; other columns are left out.

    Parameters
    ----------
    kind
        What the rows are, for messages.
    optional
        Columns that may be absent: they are empty then.

    Raises
    ------
    InputError
        If a column is missing or holds something else. The message lists names and types of columns, never a value.
    """
    present = frame.collect_schema()
    missing = [name for name in schema if name not in present and name not in optional]
    if missing:
        listed = listed_columns(list(present))
        there = "Some columns are named by values, as if the first row was names" if present else "It has none"
        raise InputError(
            f"has no column {', '.join(map(repr, missing))}, which {kind} have. "
            f"{there if listed is None else f'It has {listed}'}",
            path=FRAME,
            hint="Rename its columns",
        )
    return frame.select(
        _as_type(name, present[name], wanted) if name in present else pl.lit(None, wanted).alias(name)
        for name, wanted in schema.items()
    )


def _as_type(name: str, found: pl.DataType, wanted: pl.DataType) -> pl.Expr:
    """Return the column with the wanted type, if no value is lost by that."""
    column = pl.col(name)
    if isinstance(wanted, pl.Datetime):
        if not isinstance(found, pl.Datetime):
            raise _wrong_column(name, found, "times", "Convert it, or import the frame with import_traces")
        if found.time_zone is None:
            raise _wrong_column(
                name, found, "times with a time zone", "Give it one: in pandas by dt.tz_localize, in Polars by "
                "dt.replace_time_zone",
            )  # fmt: skip
        return column.dt.convert_time_zone("UTC").dt.cast_time_unit("us")
    if wanted.is_integer():
        if not found.is_integer():
            raise _wrong_column(name, found, "whole numbers", "Convert it")
    elif wanted.is_float():
        if not found.is_numeric():
            raise _wrong_column(name, found, "numbers", "Convert it")
    elif not (found in {pl.String, pl.Null} or isinstance(found, pl.Categorical | pl.Enum) or found.is_integer()):
        raise _wrong_column(name, found, "names", "Convert it")
    return column.cast(wanted)


def _wrong_column(name: str, found: pl.DataType, wanted: str, hint: str) -> InputError:
    return InputError(f"column '{name}' must hold {wanted}. Got {found} instead", path=FRAME, hint=hint)


def to_polars(frame: AnyFrame, columns: Collection[str]) -> pl.LazyFrame:
    """Return a data frame as one of Polars, lazily.

    Parameters
    ----------
    columns
        Those that are needed: of pandas no others are converted.
    """
    if isinstance(frame, pl.DataFrame | pl.LazyFrame):
        return frame.lazy()
    if _is_pandas(frame):
        return _from_pandas(frame, columns)
    try:
        return pl.DataFrame(frame).lazy()
    except (pl.exceptions.PolarsError, TypeError, ValueError):  # the message may quote a value
        raise InputError(
            "cannot be read by the Arrow stream interface", path=FRAME, hint="Convert it to Polars"
        ) from None


def _is_pandas(value: object) -> bool:
    """Whether a value is a data frame of pandas, which then has been imported by someone else."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def _from_pandas(frame: Any, columns: Collection[str]) -> pl.LazyFrame:
    """Convert columns one by one, by NumPy: by Arrow it would need PyArrow, which is larger than all else together."""
    names = [str(name) for name in frame.columns]
    for name in columns:
        if names.count(name) > 1:
            raise InputError(f"has more than one column '{name}'", path=FRAME)
    wanted = {name: _series(name, frame.iloc[:, names.index(name)]) for name in names if name in columns}
    # Columns that nobody asked for still have names: messages list them.
    others = {
        name: pl.Series(name, [None], pl.Null).new_from_index(0, len(frame)) for name in names if name not in wanted
    }
    return pl.LazyFrame(wanted | others)


def _series(name: str, column: Any) -> pl.Series:
    """Return a column of pandas; what is missing (NaN, NaT, NA, None) becomes null."""
    if column.dtype.name == "category":
        column = column.astype(column.cat.categories.dtype)
    missing = pl.Series(column.isna().to_numpy(bool))
    kind = column.dtype.kind
    if kind == "M":
        aware = column.dt.tz is not None
        if aware:
            column = column.dt.tz_convert("UTC").dt.tz_localize(None)
        times = pl.Series(name, column.to_numpy("datetime64[us]"))
        return times.dt.replace_time_zone("UTC") if aware else times
    if kind in "iufb":
        numbers = column.to_numpy(getattr(column.dtype, "numpy_dtype", column.dtype), na_value=0)
        return pl.select(pl.when(~missing).then(pl.Series(name, numbers))).to_series().alias(name)
    values = [None if gone else value for gone, value in zip(missing, column.tolist(), strict=True)]
    try:
        return pl.Series(name, values, strict=True)
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):  # the message may quote a value
        raise InputError(
            f"column '{name}' holds values of several types", path=FRAME, hint="Convert it to one"
        ) from None
