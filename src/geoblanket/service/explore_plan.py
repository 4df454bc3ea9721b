"""What other schedules would give: the table of a plan, as `geoblanket plan --json` writes it, for the page's curve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from geoblanket._untrusted import read_object
from geoblanket.errors import InputError

__all__ = ["read_plan"]

_MOST_BYTES: Final = 1 << 22
_MOST_SCHEDULES: Final = 1000

_Positive = Annotated[float, Field(gt=0, le=1e9)]


class _Part(BaseModel):
    # A plan says more than the page shows.
    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)


class _Errors(_Part):
    error_m: Annotated[float, Field(ge=0, le=1e9)]


class _Cost(_Part):
    hour: _Positive


class _Schedule(_Part):
    epsilon_per_km: _Positive
    interval_s: _Positive
    cost_per_km: _Cost
    on_the_road: _Errors


class _Nothing(_Part):
    on_the_road: _Errors


class _Plan(_Part):
    epsilon_by_interval: Annotated[list[_Schedule], Field(min_length=1, max_length=_MOST_SCHEDULES)]
    without_any_report: _Nothing


def read_plan(path: str | Path) -> dict[str, Any]:
    """Return how far off the tracker is on the road by ε and interval, and without any report, as JSON values.

    Raises
    ------
    InputError
        If the file is no plan.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            plan = _Plan.model_validate(read_object(file.read(_MOST_BYTES)))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
    except (ValueError, ValidationError) as error:
        raise InputError(
            "is not a plan with errors by ε and interval", path=path, hint="Write it with geoblanket plan --json"
        ) from error
    return {
        "without_m": plan.without_any_report.on_the_road.error_m,
        "schedules": [
            {
                "epsilon": schedule.epsilon_per_km,
                "interval_s": schedule.interval_s,
                "hour": schedule.cost_per_km.hour,
                "error_m": schedule.on_the_road.error_m,
            }
            for schedule in plan.epsilon_by_interval
        ],
    }
