"""The parameters of a build: one TOML file, flags, or both; each with its unit, and all that is wrong told at once."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, get_type_hints

from geoblanket.build.context import DEFAULT_HISTORY_WEIGHTS, Context
from geoblanket.build.reach import MAX_SPEED_M_S
from geoblanket.build.rows import MAX_ROWS
from geoblanket.build.typed_values import as_json, of_type
from geoblanket.errors import InputError, ParameterError
from geoblanket.mechanism.bundle.clock import Clock
from geoblanket.mobility.histories import LONGEST_PAST, Regimes
from geoblanket.mobility.splitting import Split

__all__ = ["BuildConfig", "LossKind", "example_config", "read_config"]

LossKind = Literal["travel", "time", "straight", "nearest"]

_LARGEST_BYTES: Final = 1 << 20
_DEFAULT_ORDER: Final = 2
_LENGTHS: Final = ("predictor", "findings", "order")
"""What tells how long blankets are, one of them at most."""


def _about(section: str, text: str, *, example: str | None = None) -> dict[str, str | None]:
    """Describe a parameter: its table in the file, what it is with its unit, and how to write one without default."""
    return {"section": section, "text": text, "example": example}


@dataclass(frozen=True, kw_only=True)
class BuildConfig:
    """All parameters that the result of a build depends on.

    Raises
    ------
    ParameterError
        Lists everything that is wrong: numbers out of range, and parameters that contradict each other.

    Examples
    --------
    >>> from geoblanket import BuildConfig
    >>> BuildConfig(epsilon=4.0, context="markov:1").eta_km
    5.0
    >>> BuildConfig(epsilon=-1.0)
    Traceback (most recent call last):
        ...
    geoblanket.errors.ParameterError: ...
    """

    epsilon: float = field(default=2.0, metadata=_about("privacy", "ε per kilometre: smaller is more private."))
    eta_km: float = field(
        default=5.0,
        metadata=_about("privacy", "The promise holds for histories at most so far apart, kilometres; inf for all."),
    )
    history_weights: tuple[float, ...] = field(
        default=DEFAULT_HISTORY_WEIGHTS,
        metadata=_about(
            "privacy",
            "What the places at t-1, t-2, t-3 count in the distance of two histories (no unit): 0 hides the past "
            "altogether, inf takes it as known.",
        ),
    )
    context: str = field(
        default="blanket",
        metadata=_about("context", "What of the past decides: none, markov:1 to markov:3, blanket or full."),
    )
    predictor: Path | None = field(
        default=None,
        metadata=_about(
            "context",
            "With the context blanket: how long blankets are, a file from `geoblanket blanket train`.",
            example='"city.predictor"',
        ),
    )
    findings: Path | None = field(
        default=None,
        metadata=_about(
            "context",
            "With the context blanket, instead of a predictor: findings from `geoblanket blanket discover`.",
            example='"findings.parquet"',
        ),
    )
    order: int | None = field(
        default=None,
        metadata=_about(
            "context",
            "With the context blanket, instead of a predictor: how many earlier places, everywhere "
            f"({_DEFAULT_ORDER} if neither is given).",
            example=str(_DEFAULT_ORDER),
        ),
    )
    max_rows: int = field(
        default=MAX_ROWS, metadata=_about("context", "The most rows of a zone: more lower the loss and take longer.")
    )
    min_count: int = field(
        default=2, metadata=_about("context", "How often a history must have been seen to have a row of its own.")
    )
    max_speed_m_s: float = field(
        default=MAX_SPEED_M_S, metadata=_about("context", "No vehicle is faster, metres per second.")
    )
    loss: LossKind = field(
        default="travel",
        metadata=_about(
            "loss",
            "What a wrong place costs: travel (error of the way to a task, km), time (the same in minutes), straight "
            "(distance, km), nearest (how often the nearest vehicle is mistaken).",
        ),
    )
    tasks: Literal["nodes", "pick-ups"] = field(
        default="nodes",
        metadata=_about(
            "loss", "Where tasks are: nodes (all road nodes alike) or pick-ups (where trips of the walks began)."
        ),
    )
    max_tasks: int = field(
        default=50_000, metadata=_about("loss", "Beyond so many tasks, a sample of so many is taken.")
    )
    vehicles: int = field(default=50, metadata=_about("loss", "With the loss nearest: how many vehicles there are."))
    delay: int = field(default=1, metadata=_about("loss", "How many intervals later the service uses the location."))
    zones: Path | None = field(
        default=None,
        metadata=_about(
            "zones", "Zones from `geoblanket roads zones`, instead of max_places.", example='"zones.parquet"'
        ),
    )
    max_places: int | None = field(
        default=None,
        metadata=_about("zones", "The largest number of places in a zone (40 if no zones are given).", example="40"),
    )
    time_zone: str = field(
        default="UTC", metadata=_about("regimes", "IANA name of the time zone of the hours.", example='"Europe/Lisbon"')
    )
    hours: dict[str, tuple[int, ...]] = field(
        default_factory=lambda: {"all day": tuple(range(24))},
        metadata=_about(
            "regimes",
            "Hours (0 to 23) of each regime, which has mechanisms of its own; every hour in one of them.",
            example="{ day = [6, 7, ...], night = [0, 1, ...] }",
        ),
    )
    held_out: float = field(
        default=0.2, metadata=_about("held_out", "Share of the vehicles, or of the time, that is kept for testing.")
    )
    split: Literal["vehicle", "time"] = field(
        default="vehicle", metadata=_about("held_out", "Hold out vehicles, or the time at the end.")
    )
    seed: int = field(default=0, metadata=_about("held_out", "Of the choice of vehicles, and of the sample of tasks."))
    gap: float = field(
        default=0.01, metadata=_about("search", "The loss is proven to be at most this share above the least possible.")
    )
    time_limit_s: float = field(
        default=1800.0,
        metadata=_about(
            "search", "The most seconds for a zone and regime; if it is reached, the result is not reproducible."
        ),
    )
    compare: bool = field(
        default=False,
        metadata=_about("search", "Also find the best mechanisms without context, to tell what it gains."),
    )
    version: int = field(default=1, metadata=_about("bundle", "A number that grows with every bundle published."))

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ParameterError(_together(problems))

    @property
    def largest(self) -> int:
        """Γ: how many earlier places histories have."""
        context = Context.parsed(self.context)
        if context.kind == "blanket" and self.predictor is None and self.findings is None:
            return self.blanket_order
        return {"none": 0, "markov": context.order}.get(context.kind, len(self.history_weights))

    @property
    def blanket_order(self) -> int:
        """How long blankets are where neither a predictor nor findings tell."""
        return min(self.order or _DEFAULT_ORDER, len(self.history_weights))

    @property
    def regime_hours(self) -> Regimes:
        """The hours in groups."""
        return Regimes(dict(sorted(self.hours.items())), self.time_zone)

    @property
    def walk_split(self) -> Split:
        """Which walks are held out."""
        return Split(by=self.split, held_out=self.held_out, seed=self.seed)

    def clock(self, interval_s: float) -> Clock:
        """Return what the bundle says of time."""
        regimes = tuple((name, tuple(sorted(hours))) for name, hours in sorted(self.hours.items()))
        return Clock(round(interval_s * 1000), self.time_zone, regimes)

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """Return all parameters by section, as JSON values; of files the names only."""
        result: dict[str, dict[str, Any]] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            section = result.setdefault(one.metadata["section"], {})
            section[one.name] = value.name if isinstance(value, Path) else as_json(value)
        return result

    def _problems(self) -> Iterator[str]:
        for name, least, most in _RANGES:
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                yield f"{name} must be from {least:g} to {most:g}, got {value:g}"
        if self.eta_km <= 0:
            yield f"eta_km must be more than 0 km, got {self.eta_km:g}"
        if len(self.history_weights) > LONGEST_PAST or not all(weight >= 0 for weight in self.history_weights):
            yield f"history_weights must be at most {LONGEST_PAST} numbers of 0 or more"
        yield from self._problems_of_context()
        if self.zones is not None and self.max_places is not None:
            yield "zones and max_places exclude each other: the zones are cut already"
        for make in (lambda: self.walk_split, lambda: self.regime_hours, lambda: self.clock(1.0)):
            try:
                make()
            except ParameterError as error:
                yield str(error).rstrip(".")

    def _problems_of_context(self) -> Iterator[str]:
        try:
            context = Context.parsed(self.context)
        except ParameterError as error:
            yield str(error).rstrip(".")
            return
        needed = {"none": 0, "markov": context.order}.get(context.kind, 1)
        if len(self.history_weights) < needed:
            yield f"the context {self.context} needs {needed} history weight(s), got {len(self.history_weights)}"
        given = [name for name in _LENGTHS if getattr(self, name) is not None]
        if context.kind != "blanket":
            yield from (f"{name} needs the context blanket, got the context {self.context}" for name in given)
        if len(given) > 1:
            yield f"{' and '.join(given)} exclude each other: each tells how long blankets are"
        if self.order is not None and self.order > len(self.history_weights):
            yield f"order {self.order} needs as many history weights, got {len(self.history_weights)}"


_RANGES: Final[tuple[tuple[str, float, float], ...]] = (
    ("epsilon", 1e-6, 1000),
    ("order", 1, LONGEST_PAST),
    ("max_rows", 1, 8192),
    ("min_count", 1, 1e9),
    ("max_speed_m_s", 0.1, 1000),
    ("max_tasks", 2, 1e9),
    ("vehicles", 2, 1e6),
    ("delay", 1, 1000),
    ("max_places", 1, 8192),
    ("seed", 0, 2**63 - 1),
    ("gap", 1e-9, 0.999),
    ("time_limit_s", 1e-3, 1e9),
    ("version", 0, 2**53),
)


def read_config(path: str | Path | None = None, **flags: Any) -> BuildConfig:
    """Return the parameters of a TOML file, overridden by flags.

    Parameters
    ----------
    path
        The file; None for the defaults. Paths in it are relative to its folder.
    flags
        Parameters by name; None changes nothing.

    Raises
    ------
    InputError
        If the file cannot be read.
    ParameterError
        Lists everything that is wrong: unknown tables and keys, wrong types, numbers out of range, contradictions.

    Examples
    --------
    >>> from geoblanket.build import read_config
    >>> read_config(epsilon=4.0, gap=None).gap
    0.01
    """
    values: dict[str, Any] = {}
    problems: list[str] = []
    if path is not None:
        values, problems = _checked(_parsed(Path(path)), Path(path).parent)
    hints = get_type_hints(BuildConfig)
    for name, value in flags.items():
        if value is None:
            continue
        try:
            values[name] = value if isinstance(value, Path) else of_type(value, hints[name])
        except ValueError as error:
            problems.append(f"{name} {error}")
    # A flag takes the place of what excludes it.
    for group in (_LENGTHS, ("zones", "max_places")):
        if any(flags.get(name) is not None for name in group):
            for name in group:
                if flags.get(name) is None:
                    values.pop(name, None)
    try:
        config = BuildConfig(**values)
    except ParameterError as error:
        problems.append(str(error).removeprefix(_BEGINNING).rstrip("."))
    if problems:
        raise ParameterError(_together(problems))
    return config


_BEGINNING: Final = "The configuration of the build is wrong: "


def _together(problems: list[str]) -> str:
    return _BEGINNING + "; ".join(problems) + "."


def _parsed(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError("no such file", path=path, hint="Write one with `geoblanket build --init`")
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise InputError(f"has more than {_LARGEST_BYTES} bytes, so it is no configuration", path=path)
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # a number of very many digits is a plain ValueError
        raise InputError(f"cannot be read as TOML ({error})", path=path) from error


def _checked(tables: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters of a file that are in order, and what is wrong with the others."""
    known: dict[str, dict[str, Field[Any]]] = {}
    for one in fields(BuildConfig):
        known.setdefault(one.metadata["section"], {})[one.name] = one
    hints = get_type_hints(BuildConfig)
    values: dict[str, Any] = {}
    problems: list[str] = []
    for section, table in tables.items():
        if section not in known or not isinstance(table, Mapping):
            problems.append(_unknown(f"table [{section}]", section, known))
            continue
        for name, value in table.items():
            if name not in known[section]:
                problems.append(_unknown(f"key '{name}' in [{section}]", name, known[section]))
                continue
            try:
                values[name] = _value(value, hints[name], folder)
            except ValueError as error:
                problems.append(f"{name} in [{section}] {error}")
    return values, problems


def _value(value: Any, hint: Any, folder: Path) -> Any:
    if hint == Path | None:
        return folder / of_type(value, str)
    return of_type(value, hint)


def _unknown(what: str, name: str, known: Mapping[str, Any]) -> str:
    near = get_close_matches(name, known, 1, 0.5)
    return f"unknown {what[:80]}" + (f" (did you mean '{near[0]}'?)" if near else f" (known: {', '.join(known)})")


def example_config() -> str:
    """Return a file with every parameter, its default and what it is; those without a default are comments."""
    lines = ["# Parameters of `geoblanket build`. Paths are relative to the folder of this file."]
    section = None
    for one in fields(BuildConfig):
        if one.metadata["section"] != section:
            section = one.metadata["section"]
            lines += ["", f"[{section}]"]
        lines += [f"# {one.metadata['text']}", _line(one)]
    return "\n".join(lines) + "\n"


def _line(one: Field[Any]) -> str:
    default = one.default_factory() if one.default_factory is not MISSING else one.default
    if default is None:
        return f"# {one.name} = {one.metadata['example']}"
    return f"{one.name} = {_toml(default)}"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f'"{name}" = {_toml(one)}' for name, one in value.items()) + " }"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).lower()
