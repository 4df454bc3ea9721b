"""The parameters of a build: a TOML file, flags, or both; each with its unit, its default and what it means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.fields import FieldInfo

from geoblanket._arguments import checked
from geoblanket.build.row_tree import MAX_SPEED_M_S
from geoblanket.build.rows import DEFAULT_HISTORY_WEIGHTS, MAX_ROWS, Context
from geoblanket.build.validation import Number, Parameters, WrongParametersError, as_json, read_toml, unknown_name
from geoblanket.errors import ParameterError
from geoblanket.mechanism.bundle.header import Clock
from geoblanket.mechanism.costs import check_epsilon
from geoblanket.mechanism.place_metric import GREAT_CIRCLE, checked_name
from geoblanket.mobility.histories import LONGEST_PAST, RegimeHours
from geoblanket.mobility.walks import Split

LossKind = Literal["travel", "time", "straight", "nearest"]

DEFAULT_MAX_PLACES: Final = 40
_DEFAULT_ORDER: Final = 2
_EXCLUSIVE: Final = (("predictor", "findings", "order"), ("zones", "max_places"))
"""Groups of parameters of which at most one is given."""


def _parameter(
    section: str, text: str, default: Any, example: str = "", *, least: float | None = None, most: float | None = None
) -> Any:
    """Describe a parameter: its table in the file, its meaning and unit, its default or how to write one, its range."""
    return Field(
        default, description=text, ge=least, le=most, json_schema_extra={"section": section, "example": example}
    )


_privacy, _context, _loss, _zones, _regimes, _held_out, _search, _bundle = (
    partial(_parameter, section)
    for section in ("privacy", "context", "loss", "zones", "regimes", "held_out", "search", "bundle")
)


class BuildConfig(Parameters):
    """Every parameter that the result of a build depends on.

    Raises
    ------
    ParameterError
        With everything that is wrong: types, numbers out of range, parameters that contradict each other.

    Examples
    --------
    >>> from geoblanket import BuildConfig
    >>> BuildConfig(epsilon=4.0, context="order:1").eta_km
    5.0
    >>> BuildConfig(epsilon=-1.0)
    Traceback (most recent call last):
        ...
    geoblanket.build.validation.WrongParametersError: ...
    """

    title_of_errors: ClassVar[str] = "The configuration of the build is wrong"

    epsilon: Annotated[Number, AfterValidator(check_epsilon)] = _privacy(
        "ε per kilometre: smaller is more private. Choose it: there is no default.", ..., "2.0"
    )
    zone_epsilon: dict[str, Annotated[Number, AfterValidator(check_epsilon)]] = _privacy(
        "ε of single zones, by their number; a report costs the ε of its zone.", {}, '{ "3" = 4.0 }'
    )
    metric: Annotated[str, AfterValidator(checked_name)] = _privacy(
        "What distances are measured in: great circle (on the map), road (the longer direction), or norm:P (ℓ_p in the "
        "plane; norm:1 counts city blocks).",
        GREAT_CIRCLE,
    )
    eta_km: Annotated[Number, Field(gt=0)] = _privacy(
        "The promise covers histories at most this far apart, kilometres; inf for all.", 5.0
    )
    history_weights: Annotated[
        tuple[Annotated[Number, Field(ge=0)], ...], Field(strict=False, max_length=LONGEST_PAST)
    ] = _privacy(
        "Weights of the places at t-1, t-2, t-3 in the distance between two histories (no unit): 0 hides the past "
        "completely, inf takes it as known.",
        DEFAULT_HISTORY_WEIGHTS,
    )
    context: Annotated[Context, BeforeValidator(Context.of)] = _context(
        f"How much of the past the mechanism uses: none, order:1 to order:{LONGEST_PAST}, blanket or full.",
        Context("blanket"),
    )
    predictor: Path | None = _context(
        "With the context blanket: the lengths of blankets, a file from `geoblanket blanket train`.",
        None,
        '"city.predictor"',
    )
    findings: Path | None = _context(
        "With the context blanket, instead of a predictor: findings from `geoblanket blanket discover`.",
        None,
        '"findings.parquet"',
    )
    order: int | None = _context(
        "With the context blanket, instead of a predictor: one length for all blankets, in places "
        f"({_DEFAULT_ORDER} if nothing else is given).",
        None,
        str(_DEFAULT_ORDER),
        least=1,
        most=LONGEST_PAST,
    )
    max_rows: int = _context(
        "The most rows of a zone: more rows lower the loss and take longer.", MAX_ROWS, least=1, most=8192
    )
    max_speed_m_s: Number = _context(
        "The top speed of any vehicle, metres per second.", MAX_SPEED_M_S, least=0.1, most=1000
    )
    loss: LossKind = _loss(
        "What a wrong place costs: travel (error of the distance to a task, km), time (the same in minutes), straight "
        "(straight-line distance, km), nearest (how often the wrong vehicle is taken for the nearest).",
        "travel",
    )
    tasks: Literal["nodes", "pick-ups"] = _loss(
        "Where tasks are: nodes (all road nodes alike) or pick-ups (where trips of the walks began).", "nodes"
    )
    max_tasks: int = _loss("The most tasks; of more, a sample of this size is drawn.", 50_000, least=2, most=10**9)
    vehicles: int = _loss("With the loss nearest: how many vehicles there are.", 50, least=2, most=10**6)
    delay: int = _loss("How many intervals later the service uses the location.", 1, least=1, most=1000)
    zones: Path | None = _zones("Zones from `geoblanket roads zones`, instead of max_places.", None, '"zones.parquet"')
    max_places: int | None = _zones(
        f"The most places of a zone ({DEFAULT_MAX_PLACES} if no zones are given).",
        None,
        str(DEFAULT_MAX_PLACES),
        least=1,
        most=8192,
    )
    time_zone: Annotated[str, Field(max_length=80)] = _regimes(
        "IANA name of the time zone of the hours, such as Europe/Lisbon.", "UTC"
    )
    hours: dict[str, Annotated[tuple[int, ...], Field(strict=False)]] = _regimes(
        "Hours (0 to 23) of each regime, which has mechanisms of its own; every hour belongs to exactly one.",
        {"all day": tuple(range(24))},
    )
    held_out: Number = _held_out("Share of the vehicles, or of the time, that is kept for testing.", 0.2)
    split: Literal["vehicle", "time"] = _held_out("Hold out vehicles, or the time at the end.", "vehicle")
    seed: int = _held_out("Seed for the choice of vehicles and the sample of tasks.", 0, least=0, most=2**63 - 1)
    gap: Number = _search(
        "The loss is proven to exceed the minimum by at most this share.", 0.01, least=1e-9, most=0.999
    )
    time_limit_s: Number = _search(
        "The most seconds for each search of a zone and regime; if it is reached, the result is not reproducible.",
        1800.0,
        least=1e-3,
        most=1e9,
    )
    compare: bool = _search("Also find the best mechanisms without context, to show what context gains.", False)
    version: int | None = _bundle(
        "A number that grows with every published bundle (1, or one more than that of the bundle that is replaced, if "
        "none is given).",
        None,
        "2",
        least=0,
        most=2**53,
    )

    @property
    def largest(self) -> int:
        """Γ: how many earlier places histories have."""
        if self.context.kind == "blanket" and self.predictor is None and self.findings is None:
            return self.blanket_order
        return self.context.past(len(self.history_weights))

    @property
    def blanket_order(self) -> int:
        """How long blankets are where neither a predictor nor findings say."""
        return min(self.order or _DEFAULT_ORDER, len(self.history_weights))

    @property
    def regime_hours(self) -> RegimeHours:
        """The hours in groups."""
        return RegimeHours(dict(sorted(self.hours.items())), self.time_zone)

    @property
    def walk_split(self) -> Split:
        """Which walks are held out."""
        return Split(by=self.split, held_out=self.held_out, seed=self.seed)

    def clock(self, interval_s: float) -> Clock:
        """Return what the bundle says of time."""
        regimes = tuple((name, tuple(sorted(hours))) for name, hours in sorted(self.hours.items()))
        return Clock(round(interval_s * 1000), self.time_zone, regimes)

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """Return all parameters by section, as JSON values; only the names of files."""
        values = {**dict(self), "context": str(self.context)}
        return {
            section: {
                name: values[name].name if isinstance(values[name], Path) else as_json(values[name]) for name in fields
            }
            for section, fields in _sections().items()
        }

    def contradictions(self) -> Iterator[str]:
        """Yield contradictions between parameters that are valid one by one."""
        weights, context = len(self.history_weights), self.context
        if weights < context.past(1):
            yield f"the context {context} needs {context.past(1)} history weight(s), got {weights}"
        given = [[name for name in group if getattr(self, name) is not None] for group in _EXCLUSIVE]
        if context.kind != "blanket":
            yield from (f"{name} needs the context blanket, got the context {context}" for name in given[0])
        yield from (f"{' and '.join(group)} exclude each other: give only one" for group in given if len(group) > 1)
        if self.order is not None and self.order > weights:
            yield f"order {self.order} needs as many history weights, got {weights}"
        for make in (lambda: self.walk_split, lambda: self.regime_hours, lambda: self.clock(1.0)):
            try:
                make()
            except ParameterError as error:
                yield str(error).rstrip(".")


def _sections() -> dict[str, dict[str, FieldInfo]]:
    """Return the parameters of each table of the file."""
    result: dict[str, dict[str, FieldInfo]] = {}
    for name, field in BuildConfig.model_fields.items():
        result.setdefault(_extra(field, "section"), {})[name] = field
    return result


def _extra(field: FieldInfo, key: str) -> str:
    return str(field.json_schema_extra[key]) if isinstance(field.json_schema_extra, dict) else ""


@checked
def read_config(path: str | Path | None = None, **flags: Any) -> BuildConfig:
    """Return the parameters of a TOML file, changed by flags.

    Parameters
    ----------
    path
        The file; None for the defaults. Paths in it are relative to its folder.
    flags
        Parameters by name; those that are None change nothing.

    Raises
    ------
    InputError
        If the file cannot be read.
    ParameterError
        With everything that is wrong: unknown tables and keys, wrong types, numbers out of range, contradictions.

    Examples
    --------
    >>> from geoblanket.build import read_config
    >>> read_config(epsilon=4.0, gap=None).gap
    0.01
    """
    values: dict[str, Any] = {}
    problems: list[tuple[str, str]] = []
    if path is not None:
        values, problems = _from_tables(
            read_toml(Path(path), hint="Write one with `geoblanket build --set help > FILE`"), path
        )
    flags = {name: value for name, value in flags.items() if value is not None}
    for group in _EXCLUSIVE:  # a flag replaces what it excludes
        if not flags.keys().isdisjoint(group):
            values = {name: value for name, value in values.items() if name not in group}
    tables = {name: f"{name} in [{section}]" for section, fields in _sections().items() for name in fields}
    try:
        config = BuildConfig(**{**values, **flags})
    except WrongParametersError as error:
        problems += [(name if name in flags else tables.get(name, name), words) for name, words in error.problems]
    if problems:
        raise WrongParametersError(BuildConfig.title_of_errors + ("" if path is None else f" ({path})"), problems)
    return config


def _from_tables(tables: Mapping[str, Any], path: str | Path) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the parameters in the tables of a file, and what is unknown there."""
    known = _sections()
    values: dict[str, Any] = {}
    problems = []
    for section, table in tables.items():
        if section not in known or not isinstance(table, Mapping):
            problems.append(("", unknown_name(f"table [{section}]", section, known)))
            continue
        for name, value in table.items():
            if name not in known[section]:
                problems.append(("", unknown_name(f"key '{name}' in [{section}]", name, known[section])))
            elif known[section][name].annotation == Path | None and isinstance(value, str):
                values[name] = Path(path).parent / value
            else:
                values[name] = value
    return values, problems


def example_config() -> str:
    """Return a file with every parameter, its meaning and its default; those without a default, as ε, are comments."""
    lines = ["# Parameters of `geoblanket build`. Paths are relative to the folder of this file."]
    for section, fields in _sections().items():
        lines += ["", f"[{section}]"]
        for name, field in fields.items():
            line = f"# {name} = {_extra(field, 'example')}"
            if field.default is not None and not field.is_required():
                line = f"{name} = {as_toml(field.default)}"
            lines += [f"# {field.description}", line]
    return "\n".join(lines) + "\n"


def as_toml(value: Any) -> str:
    """Return a value as a TOML file has it."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f'"{name}" = {as_toml(item)}' for name, item in value.items()) + " }"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str | Context) else str(value).lower()
