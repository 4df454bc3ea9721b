"""The file of a gateway: one TOML file, checked strictly, each name with its meaning."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field

from geoblanket._files import check_output
from geoblanket.build.validation import Number, Parameters, read_toml
from geoblanket.errors import OutputError, ParameterError
from geoblanket.release.budget import Budget
from geoblanket.serve.gateway.messages import AllowList, Dropped, checked_device
from geoblanket.serve.server import is_loopback

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
        raise ParameterError(
            "The name of a device must be letters, digits and _@:~=-. in one part, or in two with a slash between"
        ) from None


Token = Annotated[str, AfterValidator(_token)]
Topic = Annotated[str, AfterValidator(_topic)]
Name = Annotated[str, AfterValidator(_name)]
_Text = Annotated[str, Field(max_length=200)]
_Texts = Annotated[tuple[_Text, ...], Field(strict=False, max_length=32)]


class _Table(Parameters):
    def __init_subclass__(cls, table: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.title_of_errors = f"The table [{table}] is wrong"


class BudgetTable(_Table, table="budget"):
    """What each device may spend; see `geoblanket.release.budget.Budget`."""

    epsilon: Number
    window_s: Number

    def contradictions(self) -> Iterator[str]:
        """Yield what is no budget."""
        try:
            self.made()
        except ParameterError as error:
            yield str(error).rstrip(".")

    def made(self) -> Budget:
        """Return it as devices have it."""
        return Budget(self.epsilon, self.window_s)


class MessagesTable(_Table, table="messages"):
    """What passes besides the position; see `geoblanket.serve.gateway.messages`."""

    allow: _Texts = ()
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
    host_names: _Texts = ()
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
    url: str | None = None
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
        return urlsplit(self.url or "")


class MqttTable(_Connection, table="mqtt"):
    """The broker that devices publish true positions to."""

    url: Annotated[str, AfterValidator(_address("mqtt", "mqtts"))]
    topic: Topic = "owntracks"
    client_id: Annotated[str, Field(max_length=60)] = "geoblanket-gateway"
    version: Literal["5", "3.1.1"] = "5"
    plaintext: bool = False

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
    name: Name | None = None
    refuse: bool = False
    fences: Path | None = None
    """Fences of the device, as `geoblanket fence export` writes them; read at the start, and kept with the ledger."""


class LinesTable(_Table, table="lines"):
    """Positions come as JSON lines on standard input. It has no names."""


_Nested = Field(strict=False)  # a table of TOML becomes a model


class GatewayConfig(Parameters):
    """Everything about a gateway."""

    title_of_errors = "The configuration is wrong"

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
    budget: Annotated[BudgetTable, _Nested]
    upstream: Annotated[UpstreamTable, _Nested]
    messages: Annotated[MessagesTable, _Nested] = MessagesTable()
    http: Annotated[HttpTable, _Nested] | None = None
    """None: no HTTP, neither for positions nor for health and metrics."""
    mqtt: Annotated[MqttTable, _Nested] | None = None
    """None: no broker is listened to."""
    lines: Annotated[LinesTable, _Nested] | None = None
    """None: standard input is not read."""
    devices: dict[Name, Annotated[DeviceTable, _Nested]] = {}  # noqa: RUF012 - pydantic copies it

    def contradictions(self) -> Iterator[str]:
        """Yield what would leave the gateway without positions, or let it hear itself."""
        if self.http is None and self.mqtt is None and self.lines is None:
            yield "there is nowhere to get positions from. Add a table [http], [mqtt] or [lines], or all of them"
        if self._hears_itself_over_mqtt():
            yield (
                "[upstream] publishes where [mqtt] listens: the gateway would hear itself. Choose another topic for "
                "one of them, or another broker"
            )
        if self._hears_itself_over_http():
            yield (
                "[upstream] sends to the address of [http]: the gateway would hear itself. Give the url of your server"
            )

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
    def names_upstream(self) -> dict[str, str]:
        """Devices that the server knows by another name."""
        return {device: table.name for device, table in self.devices.items() if table.name is not None}


_STATE: Final = "gateway.state"
_PATHS: Final = frozenset({"bundle", "state", "device_key", "public_key", "fences", *_TLS_FILES})


def read_config(path: str | Path) -> GatewayConfig:
    """Return the configuration in a TOML file. Paths in it are relative to its folder.

    Raises
    ------
    InputError, ParameterError
        If it cannot be read, or with everything that is wrong in it.
    """
    path = Path(path)
    values = {"state": _STATE, **read_toml(path, hint="Write one with `geoblanket gateway --init`")}
    try:
        return GatewayConfig(**_located(values, path.parent))
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from None


def _located(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a table, and all within it, with paths in the place of the text of paths."""

    def located(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return _located(value, folder)
        return folder / value if name in _PATHS and type(value) is str else value

    return {name: located(name, value) for name, value in values.items()}


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


EXAMPLE: Final = Path(__file__).with_name("example.toml")
"""A commented configuration, which can be read as it is."""


def write_example(path: Path) -> None:
    """Write the example to a new file that others cannot read."""
    check_output(path)
    try:
        with open(path, "x", opener=_private, encoding="utf-8") as file:
            file.write(EXAMPLE.read_text(encoding="utf-8"))
    except FileExistsError:
        raise OutputError(f"{path}: is there already. Choose another name.") from None
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror or error}).") from None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
