"""A manifest version on its way: signed manifest and roster in one body; it trusts neither."""

import base64
import binascii

from shoal_protocol.encoding import canonical_json, parse_canonical_json
from shoal_protocol.errors import MalformedDocument
from shoal_protocol.manifest import Consortium


def bundle(consortium: Consortium) -> bytes:
    """Return the body that hands a manifest version with its roster to another party."""
    roster = base64.b64encode(consortium.roster.encode()).decode()
    return canonical_json({"manifest": consortium.signed_manifest.to_json(), "roster": roster})


def unbundle(body: bytes) -> tuple[bytes, bytes]:
    """Return the signed manifest's and the roster's bytes; neither is checked.

    Raises:
        MalformedDocument: the body is not what `bundle` makes.
    """
    value = parse_canonical_json(body)
    if not isinstance(value, dict) or value.keys() != {"manifest", "roster"}:
        raise MalformedDocument("the body has the fields manifest and roster")
    try:
        roster = base64.b64decode(value["roster"], validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise MalformedDocument("roster must be base64") from error
    return canonical_json(value["manifest"]), roster
