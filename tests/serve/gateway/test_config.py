"""The file of a gateway: the example loads, and whatever is wrong is said with what to do."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geoblanket.cli.main import app
from geoblanket.errors import GeoblanketError, InputError, OutputError, ParameterError
from geoblanket.serve.gateway.config import EXAMPLE, read_config, readable_by_others, write_example

GOOD = """
bundle = "city.bundle"
[budget]
epsilon = 400
window_s = 3600
[http]
[upstream]
protocol = "osmand"
url = "http://127.0.0.1:5055"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "gateway.toml"
    path.write_text(text)
    return path


def test_the_example_loads_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    done = CliRunner().invoke(app, ["gateway", str(path), "--init"])
    assert done.exit_code == 0, done.output
    assert not readable_by_others(path)
    config = read_config(path)
    assert (config.bundle, config.state) == (tmp_path / "city.bundle", tmp_path / "gateway.state")
    assert config.budget.epsilon == 400
    assert config.http is not None
    assert (config.http.host, config.mqtt, config.lines) == ("127.0.0.1", None, None)
    assert config.devices.keys() == {"jane/phone"}
    with pytest.raises(OutputError, match="is there already"):
        write_example(path)
    assert CliRunner().invoke(app, ["gateway", str(path), "--check"]).exit_code == 0


def test_every_name_of_the_example_is_known(tmp_path: Path) -> None:
    """With all comments taken away, too, except those that contradict each other."""
    whole = re.sub(r"^# (?=\[?\w+( = .*|\]\s+#.*)$)", "", EXAMPLE.read_text(), flags=re.MULTILINE)
    whole = re.sub(r"^# (?=\[(mqtt|lines)\])", "", whole, flags=re.MULTILINE)
    contradicting = r"^(token = \"in the place|topic = |retain|ca = |certificate = \"me|private_key = \"me).*$"
    whole = re.sub(contradicting, "", whole, flags=re.MULTILINE)
    config = read_config(written(tmp_path, whole))
    assert config.mqtt is not None
    assert config.lines is not None
    assert config.upstream.accuracy_m == 500
    assert config.messages.allow_betraying
    assert config.devices["jane/phone"].refuse


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("bundle", "bundel"), r"bundle is missing.*did you mean 'bundle'"),
        (("[http]", "[htpp]"), r"unknown key 'htpp' \(did you mean 'http'"),
        (("[http]", "[http]\nprot = 1"), r"\[http\] is wrong: unknown key 'prot' \(did you mean 'port'"),
        (("[http]", "[http]\nport = '1'"), r"port must be a whole number"),
        (("[http]", "[http]\nport = 70000"), r"port must be less than or equal to 65535"),
        (("[http]", ""), r"nowhere to get positions from.*\[mqtt\]"),
        (("[http]", "[http]\nhost = '0.0.0.0'"), r"true positions would cross the network in plain text"),
        (("[http]", "[http]\nhost = '0.0.0.0'\nplaintext = true\nwithout_tokens = true"), r"anyone could send"),
        (("[http]", "[http]\ncertificate = 'a'"), r"belong together"),
        (("[http]", "[http]\ntoken = 'short'"), r"token must have 16 to 256"),
        (("[http]", "[http]\n[messages]\nallow = ['vel']"), r"'vel', which may betray the place \(course and speed"),
        (("[http]", "[http]\n[messages]\nallow = ['lat']\nallow_betraying = true"), r"Leave it out"),
        (("[http]", "[mqtt]\nurl = 'http://x'"), r"begins with mqtt:// or mqtts://"),
        (("[http]", "[mqtt]\nurl = 'mqtt://me:secret@x'"), r"must not hold a password"),
        (("[http]", "[mqtt]\nurl = 'mqtt://192.0.2.1'"), r"plain text: use mqtts://"),
        (("[http]", "[mqtt]\nurl = 'mqtt://127.0.0.1'\nca = 'x'"), r"are for addresses that begin with https"),
        (("[http]", "[mqtt]\nurl = 'mqtt://127.0.0.1'\ntopic = 'a/#'"), r"topic without wildcards"),
        (("[http]", "[mqtt]\nurl = 'mqtt://127.0.0.1'\npassword = 'x'"), r"password needs username"),
        (("[http]", "[lines]\nx = 1"), r"\[lines\] is wrong: unknown key 'x'"),
        (("[http]", '[http]\n[devices."a/b/c"]'), r"The name of a device must be"),
        (("[http]", '[http]\n[devices."a"]\ntoken = 7'), r"token must be text"),
        (("[http]", "[http]\n[devices]\na = 1"), r"devices must be a table"),
        (("epsilon = 400", "epsilon = -1"), r"epsilon must be a number above 0"),
        (("epsilon = 400", "epsilon = nan"), r"epsilon must be a number, not NaN"),
        (("[budget]", "[budgets]"), r"budget is missing; unknown key 'budgets'"),
        (('"osmand"', '"owntracks"'), r"protocol must be"),
        (('"osmand"', '"owntracks-mqtt"'), r"needs a url that begins with mqtt"),
        (('"osmand"', '"lines"'), r"leave out url"),
        (("[upstream]", "[upstream]\nqueue = 0"), r"queue must be"),
        (("[upstream]", "[upstream]\nsend = 'now'"), r"send must be"),
        (("[upstream]", "[upstream]\ntoken = '0123456789abcdef'\nusername = 'x'"), r"in the place of username"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, change: tuple[str, str], problem: str) -> None:
    path = written(tmp_path, GOOD.replace(*change))
    with pytest.raises(GeoblanketError, match=problem) as error:
        read_config(path)
    assert str(path) in str(error.value)


def test_a_gateway_does_not_listen_to_itself(tmp_path: Path) -> None:
    mqtt = "[mqtt]\nurl = 'mqtt://127.0.0.1:1883'\n[upstream]\nprotocol = 'owntracks-mqtt'\n"
    start = GOOD.partition("[http]")[0]
    with pytest.raises(ParameterError, match="would hear itself"):
        read_config(written(tmp_path, f"{start}{mqtt}url = 'mqtt://127.0.0.1:1883'"))
    read_config(written(tmp_path, f"{start}{mqtt}url = 'mqtt://127.0.0.1:1883'\ntopic = 'perturbed'"))
    read_config(written(tmp_path, f"{start}{mqtt}url = 'mqtt://127.0.0.1:1884'"))


@pytest.mark.parametrize(
    ("url", "itself"),
    [
        ("mqtt://localhost", True),
        ("mqtt://LOCALHOST.:1883", True),
        ("mqtt://[::1]:1883", True),
        ("mqtt://127.1", True),
        ("mqtts://localhost:1883", True),
        ("mqtts://localhost", False),
        ("mqtt://broker.example:1883", False),
        ("mqtt://192.0.2.1", False),
    ],
)
def test_names_of_this_machine_and_default_ports(tmp_path: Path, url: str, itself: bool) -> None:
    start = GOOD.partition("[http]")[0]
    for given in ("mqtt://127.0.0.1", "mqtt://localhost:1883", "mqtt://[::1]"):
        tables = f"[mqtt]\nurl = '{given}'\n[upstream]\nprotocol = 'owntracks-mqtt'\nurl = '{url}'\n"
        with pytest.raises(ParameterError, match="would hear itself") if itself else contextlib.nullcontext():
            read_config(written(tmp_path, start + tables))


@pytest.mark.parametrize(
    ("http", "url", "itself"),
    [
        ("", "http://127.0.0.1:8650", True),
        ("", "http://localhost:8650/pub", True),
        ("", "http://localhost:8651", False),
        ("port = 80", "http://localhost", True),
        ("port = 443", "https://[::1]/x", True),
        ("port = 443", "http://[::1]/x", False),
        ("host = '0.0.0.0'\nplaintext = true", "http://127.0.0.1:8650", True),
        ("host = '192.0.2.7'\nplaintext = true", "http://192.0.2.7:8650", True),
        ("host = '192.0.2.7'\nplaintext = true", "http://192.0.2.8:8650", False),
        ("host_names = ['gps.example.org']", "http://GPS.example.org:8650", True),
    ],
)
def test_a_gateway_does_not_post_to_itself(tmp_path: Path, http: str, url: str, itself: bool) -> None:
    text = GOOD.replace("[http]", f"[http]\n{http}").replace("http://127.0.0.1:5055", url)
    with pytest.raises(ParameterError, match="would hear itself") if itself else contextlib.nullcontext():
        read_config(written(tmp_path, text))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gateway --init"):
        read_config(tmp_path / "absent.toml")
