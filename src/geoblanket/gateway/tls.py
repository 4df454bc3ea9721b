"""TLS towards brokers and servers, by the files that are given."""

from __future__ import annotations

import ssl
from pathlib import Path

from geoblanket.errors import InputError

__all__ = ["client_context"]


def client_context(ca: Path | None, certificate: Path | None, private_key: Path | None) -> ssl.SSLContext:
    """Return how to connect; the other side must prove its name.

    Parameters
    ----------
    ca
        Who signed the other side's certificate (PEM); None: the authorities of this machine.
    certificate, private_key
        One's own, if the other side asks for them (PEM).
    """
    try:
        context = ssl.create_default_context(cafile=ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if certificate is not None:
            context.load_cert_chain(certificate, private_key)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"cannot be used for TLS ({type(error).__name__})", path=ca or certificate) from None
    return context
