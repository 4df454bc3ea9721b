from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from geoblanket.build.config import BuildConfig, example_config, read_config
from geoblanket.build.rows import Context
from geoblanket.errors import InputError, ParameterError


def write(folder: Path, text: str) -> Path:
    path = folder / "city.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_example_is_the_defaults_with_every_parameter_explained(tmp_path: Path) -> None:
    text = example_config()
    with pytest.raises(ParameterError, match=r"epsilon in \[privacy\] is missing"):
        read_config(write(tmp_path, text))
    assert read_config(write(tmp_path, text), epsilon=2.0) == BuildConfig(epsilon=2.0)
    for name in (name for section in BuildConfig(epsilon=2.0).as_dict().values() for name in section):
        lines = text.splitlines()
        at = [number for number, line in enumerate(lines) if line.removeprefix("# ").startswith(f"{name} = ")]
        assert len(at) == 1
        assert lines[at[0] - 1].startswith("# ")


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        [privacy]
        epsilon = "2/km"
        eta_m = 5000
        history_weights = [1.0, true]
        [contxt]
        context = "none"
        [search]
        gap = 2
        time_limit_s = 10
        [held_out]
        seed = 1.5
        """,
    )
    with pytest.raises(ParameterError) as caught:
        read_config(path, context="order:4")
    for words in (
        "epsilon in [privacy] must be a number",
        "unknown key 'eta_m' in [privacy] (did you mean 'eta_km'?)",
        "history_weights in [privacy] must be a number, got True",
        "unknown table [contxt] (did you mean 'context'?)",
        "gap in [search] must be less than or equal to 0.999, got 2",
        "seed in [held_out] must be a whole number, got 1.5",
        "order:1 to order:3",
    ):
        assert words in str(caught.value)
    assert str(caught.value).count("The configuration of the build is wrong") == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": 0.0}, "ε must be from 0.01 to 20 per km"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"eta_km": 0.0}, "eta_km"),
        ({"history_weights": (1.0,) * 4}, "history_weights"),
        ({"history_weights": (-1.0,)}, "history_weights"),
        ({"history_weights": ()}, "needs 1 history weight"),
        ({"context": "order:2", "history_weights": (1.0,)}, "needs 2 history weight"),
        ({"context": "none", "order": 1}, "order needs the context blanket"),
        ({"context": "full", "predictor": Path("a")}, "predictor needs the context blanket"),
        ({"order": 1, "predictor": Path("a")}, "exclude each other"),
        ({"order": 3, "history_weights": (1.0, 0.5)}, "order 3 needs as many history weights"),
        ({"hours": {"day": tuple(range(23))}}, "every hour"),
        ({"hours": {"start": tuple(range(24))}}, "another name than 'start'"),
        ({"time_zone": "Mars/Olympus"}, "IANA"),
        ({"held_out": 1.0}, "held out"),
        ({"zones": Path("zones.parquet"), "max_places": 10}, "zones and max_places exclude each other"),
        ({"max_rows": 0}, "max_rows"),
        ({"delay": 0}, "delay"),
    ],
)
def test_impossible_parameters_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        BuildConfig(**{"epsilon": 2.0, **options})  # type: ignore[arg-type]  # wrong on purpose


def test_flags_take_the_place_of_the_file_and_of_what_excludes_them(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '[privacy]\nepsilon = 3\neta_km = inf\n[context]\npredictor = "a.predictor"\n[zones]\nzones = "z.parquet"\n'
        "[regimes]\nhours = { day = [6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21], "
        "night = [22, 23, 0, 1, 2, 3, 4, 5] }\n",
    )
    config = read_config(path)
    assert (config.epsilon, config.eta_km) == (3.0, math.inf)
    assert config.predictor == tmp_path / "a.predictor"
    assert config.clock(30.0).regimes[1] == ("night", (0, 1, 2, 3, 4, 5, 22, 23))
    changed = read_config(path, epsilon=1.0, order=1, max_places=50, gap=None)
    assert (changed.epsilon, changed.order, changed.predictor, changed.max_places, changed.zones) == (
        1.0, 1, None, 50, None,
    )  # fmt: skip
    assert changed.gap == BuildConfig(epsilon=2.0).gap


def test_parameters_as_json_tell_infinity_and_no_folders(tmp_path: Path) -> None:
    config = BuildConfig(epsilon=2.0, eta_km=math.inf, predictor=tmp_path / "a.predictor")
    values = json.loads(json.dumps(config.as_dict(), allow_nan=False))
    assert values["privacy"]["eta_km"] == "inf"
    assert values["context"]["predictor"] == "a.predictor"


@pytest.mark.parametrize(
    ("context", "order", "largest"),
    [("none", None, 0), ("order:2", None, 2), ("blanket", None, 2), ("blanket", 1, 1), ("full", None, 3)],
)
def test_histories_are_as_long_as_the_context_looks_back(context: str, order: int | None, largest: int) -> None:
    assert BuildConfig(epsilon=2.0, context=Context.of(context), order=order).largest == largest


def test_files_that_are_no_toml_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_config(tmp_path / "absent.toml")
    for content in (b"\xff\xfe\x00", b"epsilon = ", b"[a]\n[a]\n", b"#" * (2 << 20)):
        path = tmp_path / "city.toml"
        path.write_bytes(content)
        with pytest.raises(InputError):
            read_config(path)


def test_a_number_of_very_many_digits_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "build.toml"
    path.write_text("[privacy]\nepsilon = " + "9" * 5000)
    with pytest.raises(InputError, match=r"build\.toml: cannot be read as TOML"):
        read_config(path)
