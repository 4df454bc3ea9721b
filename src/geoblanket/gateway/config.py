"""The file of a gateway: one TOML file, checked strictly, each name with its meaning."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field

from geoblanket._files import check_output
from geoblanket.build.validation import Number, Parameters, read_toml, unknown_name
from geoblanket.errors import OutputError, ParameterError
from geoblanket.gateway.position import AllowList, Dropped, checked_device
from geoblanket.release.budget import Budget
from geoblanket.service.server import is_loopback

__all__ = [
    "EXAMPLE",
    "BudgetTable",
    "DeviceTable",
    "GatewayConfig",
    "HttpTable",
    "MessagesTable",
    "MqttTable",
    "UpstreamTable",
    "read_config",
    "write_example",
]

_SHORTEST_TOKEN: Final = 16
_THIS_MACHINE: Final = "localhost"
_PORTS: Final = {"http": 80, "https": 443, "mqtt": 1883, "mqtts": 8883}


def _token(text: str) -> str:
    if not (_SHORTEST_TOKEN <= len(text) <= 256 and text.isascii() and text.isprintable() and " " not in text):
        raise ValueError(f"must have {_SHORTEST_TOKEN} to 256 printable ASCII characters, without spaces")
    return text


def _address(*schemes: str) -> Callable[[str], str]:
    def checked(text: str) -> str:
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            raise ValueError("is not an address") from None
        if parts.scheme not in schemes or not parts.hostname or port == 0:
            raise ValueError(f"must be an address that begins with {' or '.join(f'{name}://' for name in schemes)}")
        if parts.username is not None or parts.password is not None:
            raise ValueError("must not hold a password: give username and password")
        if parts.fragment:
            raise ValueError("must not have a part after #")
        return text

    return checked


def _topic(text: str) -> str:
    parts = text.split("/")
    if not text or len(text) > 200 or any(not part or set(part) & set("+#\0") for part in parts) or text[0] == "$":
        raise ValueError("must be a topic without wildcards, such as owntracks")
    return text


def _name(text: str) -> str:
    try:
        return checked_device(text)
    except Dropped:
        raise ValueError("must be letters, digits and _@:~=-. in one part, or in two with a slash between") from None


Token = Annotated[str, AfterValidator(_token)]
Topic = Annotated[str, AfterValidator(_topic)]
_Text = Annotated[str, Field(max_length=200)]


class _Table(Parameters):
    def __init_subclass__(cls, table: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.title_of_errors = f"The table [{table}] is wrong" if table else "The names above all tables are wrong"


class GeneralTable(_Table):
    """What stands above all tables."""

    bundle: Path
    """The mechanisms."""
    state: Path
    """The folder of ledger and queue; made with them."""
    device_key: Path | None = None
    """The key that seals the ledger; None: that of this machine."""
    public_key: Path | None = None
    """Only bundles signed by this Ed25519 key (PEM)."""
    enrol: bool = False
    """Whether devices get an account at first sight."""
    most_devices: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    clock_tolerance_s: Annotated[Number, Field(ge=0, le=604_800)] = 86_400.0


class BudgetTable(_Table, table="budget"):
    """What each device may spend; see `geoblanket.release.budget.Budget`."""

    epsilon: Number
    window_s: Number


class MessagesTable(_Table, table="messages"):
    """What passes besides the position; see `geoblanket.gateway.position`."""

    allow: Annotated[tuple[_Text, ...], Field(strict=False, max_length=32)] = ()
    allow_betraying: bool = False

    def contradictions(self) -> Iterator[str]:
        """Yield which name cannot be allowed."""
        try:
            self.allow_list()
        except ParameterError as error:
            yield str(error).rstrip(".")

    def allow_list(self) -> AllowList:
        """Return it as the adapters use it."""
        return AllowList(self.allow, betraying=self.allow_betraying)


class HttpTable(_Table, table="http"):
    """Where devices and servers post to, and where health and metrics are."""

    host: _Text = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8650
    host_names: Annotated[tuple[_Text, ...], Field(strict=False, max_length=32)] = ()
    token: Token | None = None
    without_tokens: bool = False
    certificate: Path | None = None
    private_key: Path | None = None
    plaintext: bool = False

    @property
    def tls(self) -> tuple[Path, Path] | None:
        """The files of certificate chain and private key."""
        return None if self.certificate is None or self.private_key is None else (self.certificate, self.private_key)

    def contradictions(self) -> Iterator[str]:
        """Yield what would let others read or send positions."""
        if (self.certificate is None) != (self.private_key is None):
            yield "certificate and private_key belong together: give both or none"
        if is_loopback(self.host):
            return
        if self.tls is None and not self.plaintext:
            yield (
                f"host {self.host} can be reached from other machines, and true positions would cross the network in "
                "plain text: give certificate and private_key, or set plaintext = true if something in front encrypts"
            )
        if self.without_tokens:
            yield "without_tokens is for loopback addresses: here anyone could send positions of any device"


_TLS_FILES: Final = ("ca", "certificate", "private_key")


class _Connection(_Table):
    username: _Text | None = None
    password: _Text | None = None
    ca: Path | None = None
    certificate: Path | None = None
    private_key: Path | None = None

    def contradictions(self) -> Iterator[str]:
        """Yield which options of a connection do not go together."""
        if self.password is not None and self.username is None:
            yield "password needs username"
        if (self.certificate is None) != (self.private_key is None):
            yield "certificate and private_key belong together: give both or none"
        if not _is_encrypted(self.parts) and any(getattr(self, name) is not None for name in _TLS_FILES):
            yield "ca, certificate and private_key are for addresses that begin with https:// or mqtts://"

    @property
    def parts(self) -> SplitResult:
        """The parts of its address."""
        raise NotImplementedError


class MqttTable(_Connection, table="mqtt"):
    """The broker that devices publish true positions to."""

    url: Annotated[str, AfterValidator(_address("mqtt", "mqtts"))]
    topic: Topic = "owntracks"
    client_id: Annotated[str, Field(max_length=60)] = "geoblanket-gateway"
    version: Literal["5", "3.1.1"] = "5"
    plaintext: bool = False

    @property
    def parts(self) -> SplitResult:
        """The parts of its address."""
        return urlsplit(self.url)

    def contradictions(self) -> Iterator[str]:
        """Yield what would let others read positions."""
        yield from super().contradictions()
        if not self.client_id:
            yield "client_id must not be empty: the broker keeps messages for it while the gateway is down"
        if not _is_encrypted(self.parts) and not self.plaintext and not _is_this_machine(self.parts.hostname):
            yield (
                "true positions would cross the network in plain text: use mqtts://, or set plaintext = true if "
                "something else encrypts"
            )


class UpstreamTable(_Connection, table="upstream"):
    """The server that gets perturbed positions."""

    protocol: Literal["owntracks-mqtt", "owntracks-http", "osmand", "lines"]
    url: Annotated[str, AfterValidator(_address("mqtt", "mqtts", "http", "https"))] | None = None
    topic: Topic = "owntracks"
    retain: bool = True
    client_id: Annotated[str, Field(max_length=60)] = "geoblanket-gateway-out"
    version: Literal["5", "3.1.1"] = "5"
    token: Token | None = None
    accuracy_m: Annotated[Number, Field(ge=1, le=100_000)] | None = None
    send: Literal["after-slot", "at-once"] = "after-slot"
    """When: a fixed time after the slot of a position, or as it comes, which discloses true times."""
    queue: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    connections: Annotated[int, Field(ge=1, le=64)] = 4
    timeout_s: Annotated[Number, Field(ge=0.1, le=120)] = 10.0

    @property
    def parts(self) -> SplitResult:
        """The parts of its address."""
        return urlsplit(self.url or "")

    def contradictions(self) -> Iterator[str]:
        """Yield what does not go together."""
        yield from super().contradictions()
        schemes = {"owntracks-mqtt": ("mqtt", "mqtts"), "lines": ()}.get(self.protocol, ("http", "https"))
        if not schemes:
            if self.url is not None:
                yield "lines go to standard output: leave out url"
        elif self.parts.scheme not in schemes:
            yield f"{self.protocol} needs a url that begins with {' or '.join(f'{name}://' for name in schemes)}"
        if self.token is not None and (self.username is not None or "http" not in schemes):
            yield "token is for HTTP, in the place of username and password"


class DeviceTable(_Table, table='devices."NAME"'):
    """A device that is known."""

    token: Token | None = None
    name: Annotated[str, AfterValidator(_name)] | None = None
    refuse: bool = False
    fences: Path | None = None
    """Fences of the device, as `geoblanket fence export` writes them; read at the start, and kept with the ledger."""


@dataclass(frozen=True)
class GatewayConfig:
    """Everything about a gateway."""

    general: GeneralTable
    budget: BudgetTable
    upstream: UpstreamTable
    messages: MessagesTable = field(default_factory=MessagesTable)
    http: HttpTable | None = None
    """None: no HTTP, neither for positions nor for health and metrics."""
    mqtt: MqttTable | None = None
    """None: no broker is listened to."""
    lines: bool = False
    """Whether positions come as JSON lines on standard input."""
    devices: Mapping[str, DeviceTable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.http is None and self.mqtt is None and not self.lines:
            raise ParameterError(
                "The gateway has nowhere to get positions from. Add a table [http], [mqtt] or [lines], or all of them."
            )
        if self._hears_itself_over_mqtt():
            raise ParameterError(
                "[upstream] publishes where [mqtt] listens: the gateway would hear itself. Choose another topic for "
                "one of them, or another broker."
            )
        if self._hears_itself_over_http():
            raise ParameterError(
                "[upstream] sends to the address of [http]: the gateway would hear itself. Give the url of your server."
            )
        self.made_budget  # noqa: B018 - it checks the numbers

    def _hears_itself_over_mqtt(self) -> bool:
        if self.mqtt is None or self.upstream.protocol != "owntracks-mqtt":
            return False
        return _endpoint(self.upstream.parts) == _endpoint(self.mqtt.parts) and self.upstream.topic == self.mqtt.topic

    def _hears_itself_over_http(self) -> bool:
        if self.http is None or self.upstream.protocol not in {"owntracks-http", "osmand"}:
            return False
        host, port = _endpoint(self.upstream.parts)
        return port == self.http.port and host in map(_machine, (self.http.host, *self.http.host_names))

    @property
    def made_budget(self) -> Budget:
        """What each device may spend."""
        return Budget(self.budget.epsilon, self.budget.window_s)

    @property
    def names_upstream(self) -> dict[str, str]:
        """Devices that the server knows by another name."""
        return {device: table.name for device, table in self.devices.items() if table.name is not None}


_STATE: Final = "gateway.state"
_Model = TypeVar("_Model", bound=Parameters)
_PATHS: Final = {
    "": ("bundle", "state", "device_key", "public_key"),
    "http": ("certificate", "private_key"),
    "mqtt": _TLS_FILES,
    "upstream": _TLS_FILES,
}
_TABLES: Final[dict[str, type[Parameters]]] = {
    "budget": BudgetTable,
    "messages": MessagesTable,
    "http": HttpTable,
    "mqtt": MqttTable,
    "upstream": UpstreamTable,
}


def read_config(path: str | Path) -> GatewayConfig:
    """Return the configuration in a TOML file. Paths in it are relative to its folder.

    Raises
    ------
    InputError, ParameterError
        If it cannot be read, or with everything that is wrong in the first wrong table.
    """
    path = Path(path)
    values = read_toml(path, hint="Write one with `geoblanket gateway --init`")
    general = {name: value for name, value in values.items() if not isinstance(value, dict)}
    known = {*GeneralTable.model_fields, *_TABLES, "lines", "devices"}
    for name, value in values.items():
        if isinstance(value, dict) and name not in {*_TABLES, "lines", "devices"}:
            raise ParameterError(f"{path}: {unknown_name(f'table [{name}]', name, dict.fromkeys(sorted(known)))}.")
    try:
        tables: dict[str, Any] = {
            name: _table(model, values[name], path.parent, _PATHS.get(name, ()))
            for name, model in _TABLES.items()
            if name in values
        }
        for name in ("budget", "upstream"):
            if name not in tables:
                raise ParameterError(f"The table [{name}] is missing. `geoblanket gateway --init` writes an example.")
        if values.get("lines", {}) != {}:
            raise ParameterError("The table [lines] has no names: leave it empty.")
        return GatewayConfig(
            general=_table(GeneralTable, {"state": _STATE, **general}, path.parent, _PATHS[""]),
            lines="lines" in values,
            devices={
                _device_name(name): _table(DeviceTable, table, path.parent, ("fences",))
                for name, table in _devices(values.get("devices", {}))
            },
            **tables,
        )
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from None


def _table(model: type[_Model], values: Any, folder: Path, paths: tuple[str, ...]) -> _Model:
    if not isinstance(values, dict):
        raise ParameterError(f"{model.title_of_errors}: it must be a table.")
    located = {name: folder / values[name] for name in paths if type(values.get(name)) is str}
    return model(**{**values, **located})


def _devices(values: Any) -> list[tuple[str, Any]]:
    if not isinstance(values, dict):
        raise ParameterError('Devices are tables, such as [devices."jane/phone"].')
    return list(values.items())


def _device_name(name: str) -> str:
    try:
        return _name(name)
    except ValueError as error:
        raise ParameterError(f"The name of a device {error}.") from None


def _is_this_machine(host: str | None) -> bool:
    """Return whether a host is named in a way that means this machine, without asking any name server."""
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def _machine(host: str) -> str:
    """Return a host's name, the same for all names that probably mean this machine."""
    name = host.lower().strip("[]").removesuffix(".")
    if name == _THIS_MACHINE or name.endswith(f".{_THIS_MACHINE}"):
        return _THIS_MACHINE
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        try:
            address = ipaddress.IPv4Address(socket.inet_aton(name))  # 127.1, as the system reads it
        except OSError:
            return name
    address = getattr(address, "ipv4_mapped", None) or address
    return _THIS_MACHINE if address.is_loopback or address.is_unspecified else str(address)


def _endpoint(parts: SplitResult) -> tuple[str, int]:
    """Return the machine and the port of an address."""
    return _machine(parts.hostname or ""), parts.port or _PORTS[parts.scheme]


def _is_encrypted(parts: SplitResult) -> bool:
    return parts.scheme in {"https", "mqtts"}


def readable_by_others(path: Path) -> bool:
    """Return whether a file, which holds passwords, can be read by others than its owner."""
    return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


EXAMPLE: Final = """\
# A gateway: true positions in, perturbed positions out. Start it with: geoblanket gateway gateway.toml
# Paths are relative to the folder of this file. Keep it to yourself: it holds passwords (chmod 600).

bundle = "city.bundle"         # the mechanisms, from `geoblanket lattice` or `geoblanket build`
state = "gateway.state"        # the folder of the durable budgets and the queue; made at the first start. Keep it.
enrol = false                  # true: a device that is not listed below gets an account at first sight
# most_devices = 10000         # how many devices there may be
# clock_tolerance_s = 86400    # positions that are older, or further ahead, are dropped, seconds
# public_key = "maker.pem"     # only a bundle that is signed by this Ed25519 key
# device_key = "ledger.key"    # what seals the budgets; by default the key of this machine

[budget]                       # what each device may spend, in any window of time
epsilon = 400.0                # for reports, per km
window_s = 3600.0              # length of the window, seconds

[messages]
allow = ["batt", "tid"]        # what passes besides the position: battery, and the tracker's initials
# allow_betraying = true       # also lets names pass that betray a place, such as vel, cog, alt, acc or SSID. This
#                              # breaks the promise: whoever reads the messages may find the true place.

[http]                         # devices and servers post here; health and metrics are here, too
host = "127.0.0.1"             # only this machine. Others need certificate and private_key.
port = 8650                    # /owntracks, /osmand (Traccar Client), /traccar (forwarding), /fence, /health, /metrics
# certificate = "chain.pem"    # TLS: certificate chain and private key (PEM)
# private_key = "key.pem"
# plaintext = true             # allow other machines without TLS, if a proxy in front encrypts
# host_names = ["gps.example.org"]  # names by which this machine is asked for, besides localhost
# token = "change-me-at-least-16-characters"  # may speak for every device: for a server that forwards
# without_tokens = true        # on a loopback address: any program of this machine may send positions

# [mqtt]                       # a broker that devices publish to, as OwnTracks does: owntracks/USER/DEVICE
# url = "mqtt://127.0.0.1:1883"  # mqtts:// for TLS
# topic = "owntracks"
# username = "gateway"
# password = "change me"
# ca = "ca.pem"                # who signed the broker's certificate; by default the authorities of this machine
# certificate = "me.pem"       # the gateway's own certificate and key, if the broker asks for them
# private_key = "me.key"
# version = "5"                # of MQTT; "3.1.1" for brokers that know no other
# plaintext = true             # allow mqtt:// to another machine, if something else encrypts

# [lines]                      # JSON lines on standard input

[upstream]                     # the server that gets perturbed positions
protocol = "osmand"            # osmand (Traccar), owntracks-http, owntracks-mqtt, or lines (standard output)
url = "http://127.0.0.1:5055"  # http:// or https://; mqtt:// or mqtts:// for owntracks-mqtt
# topic = "owntracks"          # owntracks-mqtt: positions go to TOPIC/USER/DEVICE
# retain = true                # owntracks-mqtt: the broker keeps the last position, as the apps ask it to
# username = "gateway"
# password = "change me"
# token = "in the place of username and password, for HTTP"
# ca = "ca.pem"                # and certificate, private_key: as in [mqtt]
# send = "at-once"             # as positions come, which tells the server their true times; by default "after-slot"
# accuracy_m = 500             # tell the server this accuracy with every position, metres
# queue = 100000               # messages that wait while the server is down; then the oldest are dropped
# connections = 4              # HTTP connections at once; the messages of a device always go in order
# timeout_s = 10

[devices."jane/phone"]         # USER/DEVICE of OwnTracks, or the identifier of a device in Traccar
token = "another-secret-of-16-or-more"  # HTTP: its Bearer token, or its password with any user name
# name = "0042"                # how the server knows it; by default the same
# refuse = true                # drop its messages
# fences = "jane.fences.json"  # places that stay hidden, from `geoblanket fence export`
"""
"""A commented file, which can be read as it is."""


def write_example(path: Path) -> None:
    """Write the example to a new file that others cannot read."""
    check_output(path)
    try:
        with open(path, "x", opener=_private, encoding="utf-8") as file:
            file.write(EXAMPLE)
    except FileExistsError:
        raise OutputError(f"{path}: is there already. Choose another name.") from None
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror or error}).") from None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
