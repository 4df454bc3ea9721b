"""The server over HTTP: OwnTracks' JSON by POST, or the OsmAnd protocol."""

from __future__ import annotations

import base64
import http.client
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlencode

from geoblanket.gateway.adapters import osmand, owntracks
from geoblanket.gateway.config import UpstreamTable
from geoblanket.gateway.position import Released
from geoblanket.gateway.tls import client_context

__all__ = ["HttpSender"]

_FOR_GOOD: Final = frozenset({400, 409, 410, 413, 415, 422})
"""The server will not take this message however often it is sent: an unknown device, for example. Other refusals are of
the gateway as a whole (401, 404), or pass (429, 503), and the message waits."""
_LARGEST_ANSWER: Final = 1 << 16


class HttpSender:
    """One connection, kept open between messages."""

    def __init__(self, table: UpstreamTable, names: Mapping[str, str]) -> None:
        self._table, self._names = table, names
        self._parts: SplitResult = table.parts
        self._headers = {"User-Agent": "geoblanket-gateway", **_authorization(table)}
        self._connection: http.client.HTTPConnection | None = None

    def send(self, message: Released) -> bool:
        """Send a message; see `geoblanket.gateway.upstream.Sender`."""
        method, path, body, headers = self._request(message)
        try:
            if self._connection is None:
                self._connection = self._connected()
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            answer.read(_LARGEST_ANSWER)
            if not answer.isclosed():  # a longer one: not worth reading
                self.close()
        except http.client.HTTPException as error:
            raise ConnectionError(type(error).__name__) from None
        if 200 <= answer.status < 300:
            return True
        if answer.status in _FOR_GOOD:
            return False
        raise ConnectionRefusedError(f"status {answer.status}")

    def close(self) -> None:
        """Close the connection; the next message opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _request(self, message: Released) -> tuple[str, str, bytes | None, dict[str, str]]:
        name = self._names.get(message.device, message.device)
        accuracy_m = self._table.accuracy_m
        path = self._parts.path or "/"
        if self._table.protocol == "osmand":
            query = osmand.written(message, name=name, accuracy_m=accuracy_m)
            return "GET", f"{path}?{_joined(self._parts.query, query)}", None, self._headers
        user, device = owntracks.user_and_device(name)
        query = _joined(self._parts.query, urlencode({"u": user, "d": device}))
        headers = {"Content-Type": "application/json", "X-Limit-U": user, "X-Limit-D": device, **self._headers}
        topic = owntracks.topic_of(name, self._table.topic)
        body = owntracks.written(message, name=name, accuracy_m=accuracy_m, topic=topic)
        return "POST", f"{path}?{query}", body, headers

    def _connected(self) -> http.client.HTTPConnection:
        host, port, timeout_s = self._parts.hostname or "", self._parts.port, self._table.timeout_s
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        context: ssl.SSLContext = client_context(self._table.ca, self._table.certificate, self._table.private_key)
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)


def _joined(*queries: str) -> str:
    return "&".join(filter(None, queries))


def _authorization(table: UpstreamTable) -> dict[str, str]:
    if table.token is not None:
        return {"Authorization": f"Bearer {table.token}"}
    if table.username is not None:
        pair = base64.b64encode(f"{table.username}:{table.password or ''}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    return {}
