"""An experiment: a small TOML file that says which settings are compared, with which methods and how exactly.

Keys of `[setting]` hold for all settings. Each `[[vary]]` gives settings of its own: one for every combination of the
values of its keys that are lists (`history_weights`, itself a list, is varied as a list of lists).
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import Field

from geoblanket._arguments import checked
from geoblanket.build.config import DEFAULT_MAX_PLACES
from geoblanket.build.rows import DEFAULT_HISTORY_WEIGHTS, MAX_ROWS, Context
from geoblanket.build.validation import Number, Parameters, WrongParametersError, as_json, read_toml
from geoblanket.errors import InputError
from geoblanket.lab.evaluate.methods import METHODS, is_own

_Model = TypeVar("_Model", bound=Parameters)
_LISTS = ("methods",)
"""Keys of settings whose lists are one value, not several."""
_LISTS_OF_LISTS = ("history_weights",)
_ORDERS = ("order:1", "order:2", "order:3")


class Varied(StrEnum):
    """Quantities that can vary besides the columns of results."""

    EQUAL_COST = "equal cost"
    DELAY = "delay"
    BLANKET = "blanket"
    ROWS = "rows"
    REPORTS = "reports"
    EVERY = "every"


_FORMS = {
    Varied.EQUAL_COST: "equal cost {}",
    Varied.DELAY: "delay {}",
    Varied.BLANKET: "blanket {}",
    Varied.ROWS: "{} rows",
    Varied.REPORTS: "T = {}",
    Varied.EVERY: "report every {} steps",
}
_COUNTS = (Varied.ROWS, Varied.REPORTS, Varied.EVERY)
_BETWEEN = "; "


def variant_of(varied: Varied, value: float | str) -> str:
    """Return the text by which `variant` gives a quantity's value."""
    return _FORMS[varied].format(value)


def joined(*variants: str) -> str:
    """Return several variants as one."""
    return _BETWEEN.join(filter(None, variants))


def read_variant(variant: str) -> dict[Varied, float | str]:
    """Return the values in a variant, numbers as numbers; a user's own words are left out."""
    values: dict[Varied, float | str] = {}
    for part in variant.split(_BETWEEN):
        for varied, form in _FORMS.items():
            before, after = form.split("{}")
            value = part.removeprefix(before).removesuffix(after)
            if part == variant_of(varied, value) and value and (value.isdigit() or varied not in _COUNTS):
                values[varied] = float(value) if value.isdigit() else value
    return values


LossCase = Literal["population", "case II", "straight line"]
"""`population`: error of the travel distance to a task anywhere in the city; `case II`: how often the service is wrong
about which of fifty vehicles is nearest to a task; `straight line`: distance from the true place."""
ONE_DESTINATION = "one destination"
"""The loss case of vehicles with one destination each: the mechanisms are those of `population`, since a mechanism is
made before its vehicle is sent anywhere."""

Blanket = Literal["as told", "too short", "too long", "shuffled"]
"""Whether lengths of blankets are used as they are, or made wrong to measure the cost."""


class Setting(Parameters):
    """One point of an experiment.

    Examples
    --------
    >>> from geoblanket.lab.evaluate import Setting
    >>> Setting(methods=("lp", "expmech"), epsilon=2.0).eta_km
    5.0
    """

    title_of_errors: ClassVar[str] = "A setting of the experiment is wrong"

    methods: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """Keys of `METHODS`."""
    epsilon: Number = Field(ge=1e-6, le=1000)
    """ε per kilometre."""
    eta_km: Annotated[Number, Field(ge=1e-3)] = 5.0
    """Rows at most this far apart are protected from each other, kilometres."""
    history_weights: Annotated[
        tuple[Annotated[Number, Field(ge=0)], ...],
        Field(strict=False, min_length=1, max_length=len(DEFAULT_HISTORY_WEIGHTS)),
    ] = DEFAULT_HISTORY_WEIGHTS
    """Weights of the places at t − 1, t − 2, ... in distances."""
    max_places: Annotated[int, Field(ge=2, le=8192)] = DEFAULT_MAX_PLACES
    """Places of a zone, at most."""
    max_rows: Annotated[int, Field(ge=1, le=8192)] = MAX_ROWS
    """Rows of a zone, at most."""
    city_wide: bool = False
    """Compare over all places of the city instead of zones: no zone is disclosed, and any two places are protected from
    each other. Neither `max_places` nor `eta_km` matters then, and methods that use the past cannot take part."""
    loss_case: LossCase = "population"
    delay: Annotated[int, Field(ge=1, le=1000)] = 1
    """How many intervals later the service uses the location."""
    spacing_m: Annotated[Number | None, Field(ge=0, le=1e5)] = None
    """Between places, metres; None for that of the walks."""
    interval_s: Annotated[Number | None, Field(ge=1e-3, le=1e5)] = None
    """Between reports, seconds; None for that of the walks."""
    every: Annotated[int, Field(ge=1, le=1000)] = 1
    """One report in this number of intervals; tracked vehicles are looked at in all of them."""
    blanket: Blanket = "as told"
    equal_cost: bool = False
    """Whether ε is the cost of a location in all reports together: methods with a past get ε / (1 + Σw) a report."""
    near_km: Annotated[Number, Field(ge=0)] = 1.0
    """ConstOPT optimises the outputs within this distance of a place, and TEM tells only these apart, kilometres."""
    variant: str = ""
    """A name for this setting in results."""

    @property
    def protected_km(self) -> float:
        """Rows at most this far apart are protected from each other, kilometres."""
        return math.inf if self.city_wide else self.eta_km

    @property
    def columns(self) -> tuple[object, ...]:
        """What identifies the setting in results, besides city and zone."""
        return (
            self.epsilon,
            self.eta_km,
            self.history_weights[0],
            self.spacing_m,
            self.interval_s,
            self.max_places,
            self.city_wide,
            self.loss_case,
            self.described,
        )

    @property
    def described(self) -> str:
        """What distinguishes this setting from others with the same columns in results, in words."""
        return joined(
            self.variant,
            variant_of(Varied.EQUAL_COST, "per location") if self.equal_cost else "",
            variant_of(Varied.BLANKET, self.blanket) if self.blanket != "as told" else "",
            variant_of(Varied.DELAY, self.delay) if self.delay != 1 else "",
            variant_of(Varied.EVERY, self.every) if self.every != 1 else "",
        )


class Experiment(Parameters):
    """Which settings are compared, and how exactly.

    Examples
    --------
    >>> from geoblanket.lab.evaluate import Experiment, Setting
    >>> settings = tuple(Setting(methods=("lp", "expmech"), epsilon=epsilon) for epsilon in (1.0, 2.0, 4.0))
    >>> Experiment(name="mine", title="What does privacy cost?", settings=settings, zones=2).gap
    0.01
    """

    title_of_errors: ClassVar[str] = "The experiment is wrong"

    name: str
    title: str
    """Its question, in a few words."""
    settings: tuple[Setting, ...]
    zones: int = 0
    """Number of zones, drawn in proportion to their steps; 0 for all."""
    destinations: int = 0
    """Number of additional vehicles with one destination each; 0 for none."""
    reports: Annotated[tuple[int, ...], Field(strict=False)] = (10,)
    """Numbers of reports in a row that an attacker sees in hindsight: the usual number first, then others."""
    gap: Number = 0.01
    """Losses of linear programs are proven to exceed the optimum by at most this share."""
    time_limit_s: Number = 600.0
    """Seconds for a linear program, at most."""
    max_tasks: int = 3000
    """The most tasks of the loss; of more, a sample of this size is drawn."""
    max_steps: Annotated[int, Field(ge=1)] = 50_000
    """The most held-out steps to judge by; of more, stretches of walks are drawn, from all vehicles alike."""
    seed: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            name: [as_json(dict(setting)) for setting in self.settings] if name == "settings" else as_json(value)
            for name, value in self
        }

    def with_methods(self, methods: Sequence[str]) -> Experiment:
        """Return the same with more methods in every setting, such as `FILE.py:FUNCTION`."""
        settings = (setting.replaced(methods=(*setting.methods, *methods)) for setting in self.settings)
        return self.replaced(settings=tuple(settings)) if methods else self

    def contradictions(self) -> Iterator[str]:
        """Yield contradictions between parameters that are each valid."""
        named = {method for setting in self.settings for method in setting.methods}
        unknown = {method for method in named if method not in METHODS and not is_own(method)}
        if unknown:
            yield f"unknown methods {', '.join(sorted(unknown))} (known: {', '.join(METHODS)})"
        for setting in self.settings:
            known = [METHODS[method] for method in setting.methods if method in METHODS]
            wrong = [
                method.key for method in known if (method.uses_past if setting.city_wide else method.only_city_wide)
            ]
            longest = max((Context.of(method.rows).past(0) for method in known if method.rows in _ORDERS), default=0)
            if longest > len(setting.history_weights):
                yield f"order {longest} needs as many history weights, got {len(setting.history_weights)}"
                break
            if wrong:
                where = "cannot be compared city-wide" if setting.city_wide else "can only be compared city-wide"
                yield f"{', '.join(wrong)} {where} (city_wide = {str(setting.city_wide).lower()})"
                break
        if len({setting.columns for setting in self.settings}) < len(self.settings):
            yield "some of its settings could not be told apart in results: give each a variant of its own"


class _Quick(Parameters):
    """Limits of the quick version of an experiment."""

    zones: int = 1
    max_places: int = 20
    max_rows: int = 300
    time_limit_s: Number = 60.0
    gap: Number = 0.02
    max_steps: int = 20_000
    epsilon: Annotated[tuple[Number, ...], Field(strict=False)] = (1.0, 2.0, 4.0)

    def of(self, experiment: Experiment) -> Experiment:
        settings = [
            setting.replaced(
                max_rows=min(setting.max_rows, self.max_rows), max_places=min(setting.max_places, self.max_places)
            )
            for setting in experiment.settings
            if setting.epsilon in self.epsilon
        ]
        return experiment.replaced(
            settings=tuple(dict.fromkeys(settings)),
            zones=min(experiment.zones or self.zones, self.zones),
            gap=max(experiment.gap, self.gap),
            max_steps=min(experiment.max_steps, self.max_steps),
            reports=experiment.reports[:1],
            time_limit_s=min(experiment.time_limit_s, self.time_limit_s),
        )


def shipped_experiments() -> dict[str, str]:
    """Return the names and titles of the experiments that come with geoblanket."""
    shipped = sorted((file for file in _shipped().iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return {file.name.removesuffix(".toml"): tomllib.loads(file.read_text("utf-8"))["title"] for file in shipped}


@checked
def read_experiment(name: str, *, quick: bool = False) -> Experiment:
    """Return an experiment by its name or from a TOML file.

    Parameters
    ----------
    name
        One of `shipped_experiments()`, or a path that ends in `.toml`.
    quick
        Take its quick version: fewer zones, rows, values of ε and numbers of reports, and a wider gap.

    Raises
    ------
    InputError
        If there is no such experiment, or it cannot be read.
    ParameterError
        With everything that is wrong in it.

    Examples
    --------
    >>> from geoblanket.lab.evaluate import read_experiment
    >>> experiment = read_experiment("paper", quick=True)
    >>> sorted({setting.epsilon for setting in experiment.settings})
    [0.5, 2.0, 4.0]
    """
    if name.endswith(".toml"):
        tables, name = read_toml(Path(name)), Path(name).stem
    elif name in (shipped := shipped_experiments()):
        tables = tomllib.loads((_shipped() / f"{name}.toml").read_text("utf-8"))
    else:
        near = get_close_matches(name, shipped, 1)
        raise InputError(
            f"there is no experiment {name[:40]!r}" + (f" (did you mean '{near[0]}'?)" if near else ""),
            hint=f"Give one of {', '.join(shipped)}, or a file that ends in .toml",
        )
    experiment, quick_version = _made(name, tables)
    return quick_version.of(experiment) if quick else experiment


def _shipped() -> Traversable:
    return files("geoblanket.lab.evaluate") / "experiments"


def _made(name: str, tables: Mapping[str, Any]) -> tuple[Experiment, _Quick]:
    title = f"The experiment '{name}' is wrong"
    problems: list[tuple[str, str]] = []

    def checked(model: type[_Model], values: Mapping[str, Any]) -> _Model | None:
        try:
            return model(**values)
        except WrongParametersError as error:
            problems.extend(error.problems)
            return None

    shared, quick, blocks = tables.get("setting", {}), tables.get("quick", {}), tables.get("vary", [])
    if not isinstance(blocks, list) or not all(isinstance(table, Mapping) for table in (shared, quick, *blocks)):
        raise WrongParametersError(title, [("", "[setting] and [quick] must be tables, and [[vary]] a list of tables")])
    top = {key: value for key, value in tables.items() if key not in ("setting", "vary", "quick")}
    problems += [("", f"unknown key '{key}'") for key in ("name", "settings") if key in top]
    quick_version = checked(_Quick, quick)
    settings = [checked(Setting, values) for block in blocks for values in _combinations({**shared, **block})]
    experiment = checked(Experiment, {**top, "name": name, "settings": tuple(filter(None, settings))})
    if not settings:
        problems.append(("", "it has no settings: give one [[vary]] or more"))
    if problems or experiment is None or quick_version is None:
        raise WrongParametersError(title, problems)
    return experiment, quick_version


def _combinations(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    choices = {key: value if _is_varied(key, value) else [value] for key, value in block.items()}
    for values in product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


def _is_varied(key: str, value: Any) -> bool:
    if key in _LISTS or not isinstance(value, list):
        return False
    return key not in _LISTS_OF_LISTS or all(isinstance(item, list) for item in value)
