"""Values from outside, checked by pydantic: parameters that users write, and dataclasses that were stored as JSON.

Everything wrong with parameters is reported at once.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from geoblanket._display import call_repr
from geoblanket.errors import InputError, ParameterError

_MAX_BYTES: Final = 1 << 20
_EXPECTED: Final = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "float_type": "a number",
    "int_type": "a whole number",
    "model_type": "a table",
    "string_type": "text",
    "tuple_type": "a list",
}
"""Words for pydantic's errors of type, which name types of Python."""


def _number(value: Any) -> Any:
    """Let text stand for infinity, as in records; refuse NaN, and whole numbers that a float cannot hold."""
    if value in ("inf", "-inf"):
        return float(value)
    if (type(value) is int and abs(value) >= 1 << 53) or (isinstance(value, float) and math.isnan(value)):
        raise ValueError("must be a number, not NaN or one of too many digits")
    return value


Number = Annotated[float, BeforeValidator(_number)]
"""A float: not NaN, and possibly infinite."""


class WrongParametersError(ParameterError):
    """Parameters are wrong.

    Parameters
    ----------
    title
        Which ones.
    problems
        The parameter and what is wrong with it, for all of them; no parameter if a problem concerns several.
    """

    def __init__(self, title: str, problems: Sequence[tuple[str, str]]) -> None:
        self.title = title
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__(f"{title}: {'; '.join(' '.join(filter(None, problem)) for problem in self.problems)}.")

    def __reduce__(self) -> tuple[type[WrongParametersError], tuple[str, Sequence[tuple[str, str]]]]:
        return type(self), (self.title, self.problems)


class Parameters(BaseModel):
    """Checked parameters.

    Raises
    ------
    WrongParametersError
        With everything that is wrong: unknown names, wrong types, values out of range, contradictions.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")
    title_of_errors: ClassVar[str] = "Parameters are wrong"

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            problems = [_in_words(type(self), detail) for detail in error.errors(include_url=False)]
        else:
            problems = [("", contradiction) for contradiction in self.contradictions()]
        if problems:
            raise WrongParametersError(self.title_of_errors, problems) from None

    def replaced(self, **changes: Any) -> Self:
        """Return a copy with some parameters changed, checked again."""
        return type(self)(**{**dict(self), **changes})

    def __repr__(self) -> str:
        fields = type(self).model_fields
        return call_repr(self, {name: value for name, value in self if value != fields[name].default})

    def contradictions(self) -> Iterator[str]:
        """Yield contradictions between parameters that are valid one by one."""
        yield from ()


def _in_words(model: type[BaseModel], detail: Any) -> tuple[str, str]:
    """Return the parameter that pydantic refuses, and why."""
    name, value = str(detail["loc"][0]), detail["input"]
    match detail["type"]:
        case "missing":
            return name, "is missing"
        case "extra_forbidden":
            return "", unknown_name(f"key '{name}'", name, model.model_fields)
        case "value_error":
            problem = detail["ctx"]["error"]  # ours are whole sentences
            return "" if isinstance(problem, ParameterError) else name, str(problem).rstrip(".")
    wanted = _EXPECTED.get(detail["type"])
    # The value is told only where a number was wanted and given: a text may be a password, and a name a location.
    numbers = isinstance(value, int | float) and (wanted is None or "number" in wanted)
    got = f", got {value!s:.30}" if numbers else ""
    return name, (re.sub(r"^\w+ should", "must", detail["msg"]) if wanted is None else f"must be {wanted}") + got


def unknown_name(what: str, name: str, known: Mapping[str, Any]) -> str:
    """Return the message for an unknown name, with a guess at the name that was meant."""
    near = get_close_matches(name, known, 1, 0.5)
    return f"unknown {what[:80]} " + (f"(did you mean '{near[0]}'?)" if near else f"(known: {', '.join(known)})")


def read_toml(path: Path, *, hint: str | None = None) -> dict[str, Any]:
    """Return the tables of a TOML file; raise InputError if it cannot be read, or is too large for parameters."""
    if not path.is_file():
        raise InputError("no such file", path=path, hint=hint)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"has more than {_MAX_BYTES} bytes, too many for a file of parameters", path=path)
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # a number of very many digits is a plain ValueError
        raise InputError(f"cannot be read as TOML ({error})", path=path) from error


Made = TypeVar("Made")


def read_dataclass(cls: type[Made], values: Any) -> Made:
    """Return the dataclass that `as_json` gave as `values`; raise ValueError if it cannot be made from them."""
    try:
        made: Made = _adapter(cls).validate_python(values)  # type: ignore[arg-type]  # classes are hashable
    except ValidationError as error:
        wrong = {".".join(map(str, detail["loc"])) or "all of it" for detail in error.errors()}
        raise ValueError(f"not {cls.__name__}: {', '.join(sorted(wrong))} is missing or wrong") from None
    return made


def as_json(value: Any) -> Any:
    """Return dataclasses, mappings, sequences and numbers as JSON values; infinity becomes "inf" or "-inf"."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


@cache
def _adapter(cls: type) -> TypeAdapter[Any]:
    return TypeAdapter(cls)
