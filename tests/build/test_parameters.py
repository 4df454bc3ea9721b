from __future__ import annotations

import math
import pickle
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from geoblanket.build.config import BuildConfig
from geoblanket.build.validation import Parameters, WrongParametersError
from geoblanket.errors import ParameterError
from geoblanket.lab.evaluate.experiment import Experiment, Setting

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 10**30, 10**400, -(10**400), 1.5, math.nan, math.inf, -math.inf, "", "x", "inf", "a" * 1000, [],
    [1], [1.0, "a"], [[1]], [math.nan], [10**400], [-1], {}, {"a": 1}, {"a": [1]}, {"a": ["b"]}, {"a": [25]},
    date(2020, 1, 1), Path("x"), b"x",
)  # fmt: skip
NEEDED: tuple[tuple[type[Parameters], dict[str, Any]], ...] = (
    (BuildConfig, {"epsilon": 2.0}),
    (Setting, {"methods": ("lp",), "epsilon": 1.0}),
    (Experiment, {"name": "a", "title": "b", "settings": ()}),
)


@pytest.mark.parametrize(
    ("model", "needed", "name"), [(model, needed, name) for model, needed in NEEDED for name in model.model_fields]
)
def test_whatever_is_given_is_taken_or_refused(model: type[Parameters], needed: dict[str, Any], name: str) -> None:
    refusals = []
    for value in ODD:
        try:
            made = model(**{**needed, name: value})
        except WrongParametersError as error:
            refusals.append(error)
        else:
            assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301 - made here
    assert refusals
    for refusal in refusals:
        assert "Input should" not in str(refusal)
        assert str(pickle.loads(pickle.dumps(refusal))) == str(refusal)  # noqa: S301 - made here


def test_a_changed_copy_is_checked_again() -> None:
    setting = Setting(methods=("lp",), epsilon=1.0)
    assert setting.replaced(epsilon=2).epsilon == 2.0
    with pytest.raises(ParameterError, match="epsilon must be greater than or equal to"):
        setting.replaced(epsilon=0)
    with pytest.raises(ParameterError, match=r"unknown key 'epsilo' \(did you mean 'epsilon'\?\)"):
        setting.replaced(epsilo=1)
