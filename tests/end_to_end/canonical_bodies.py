"""Hooks of Schemathesis: bodies in canonical JSON, and long polls that are short."""

import json
from typing import Any

import schemathesis

from shoal_protocol.wire.encoding import canonical_json

SHORTER = 1000.0


@schemathesis.serializer("application/json")
def write_canonical(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """Write what has a canonical form in it, the rest as it comes: that is to be refused."""
    try:
        return canonical_json(value)
    except ValueError:
        return json.dumps(value, default=repr).encode()


@schemathesis.hook
def map_query(context: schemathesis.HookContext, query: Any) -> Any:
    """Have nobody wait for half a minute for what will not come."""
    if isinstance(query, dict) and isinstance(query.get("wait"), float) and 0 < query["wait"] <= 30:
        query["wait"] /= SHORTER
    return query
