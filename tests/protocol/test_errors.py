"""Every way of being wrong has its own name, an HTTP status and a remedy."""

import pytest

from shoal_protocol.wire import errors, service_errors
from shoal_protocol.wire.errors import ProtocolError

KINDS = sorted(
    {
        kind
        for module in (errors, service_errors)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, ProtocolError)
    },
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_says_what_is_wrong_and_what_to_do(kind: type[ProtocolError]) -> None:
    assert str(kind()) == kind.title
    assert str(kind("this detail")) == "this detail"
    assert kind.remedy.endswith(".")
    assert 400 <= kind.status < 600


@pytest.mark.parametrize("kind", KINDS)
def test_a_peers_fault_is_never_a_value_error(kind: type[ProtocolError]) -> None:
    assert not issubclass(kind, ValueError)
