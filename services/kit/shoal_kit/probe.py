"""A container's health check: asks the service beside it whether it is ready.

It trusts exactly the service's own certificates, which after a rotation are several, and reads the
environment as the service does.
"""

import http.client
import os
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path

TIMEOUT_SECONDS = 8.0  # a busy machine is not an ill service


def is_ready(environ: Mapping[str, str]) -> bool:
    """Return whether the service on this machine's loopback answers that it is ready."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for certificate in Path(environ["SHOAL_PARTY"]).glob("tls*.crt"):  # which is in force, it knows
        context.load_verify_locations(certificate)
    context.check_hostname = False  # the certificate names the public host, not the loopback
    host = environ.get("SHOAL_HOST", "")
    loopback = host if host == "::1" or host.startswith("127.") else "127.0.0.1"
    connection = http.client.HTTPSConnection(
        loopback, int(environ["SHOAL_PORT"]), timeout=TIMEOUT_SECONDS, context=context
    )
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(0 if is_ready(os.environ) else 1)
