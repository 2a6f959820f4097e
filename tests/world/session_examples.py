"""Made-up sessions of one data holder, and a dictionary: always the same bytes."""

from datetime import timedelta
from typing import Any

import numpy as np
from nacl import bindings

from shoal_protocol.sharing.session_envelope import SessionHeader, SessionWrapping, seed_for
from shoal_protocol.sharing.sessions import (
    Prekey,
    SessionRefusal,
    advance,
    hour_for,
    open_session,
)
from shoal_protocol.sharing.shares import Share, ShareKind
from shoal_protocol.trust.dictionary import DataDictionary, Number
from shoal_protocol.wire.documents import Role, Signed
from tests.world.examples import (
    AUTHORITY,
    CONSORTIUM,
    DIMENSION,
    OPENED_AT,
    SPEC,
    answer_id,
    named,
    random_bytes,
    seed,
)

HOLDER = 4
NODE = 2
NUMBER = int(OPENED_AT.timestamp()) - 2 * 3600


def prekey(private: bytes, node: int = NODE) -> Prekey:
    return Prekey(
        authority=bytes(AUTHORITY.verify_key).hex(),
        node=f"compute-{node}",
        box_key=bindings.crypto_scalarmult_base(private).hex(),
        valid_from=OPENED_AT - timedelta(hours=2),
        valid_until=OPENED_AT,
    )


PREKEY_PRIVATE = seed("prekey")
PREKEY = prekey(PREKEY_PRIVATE)
OPENING, _KEYS = open_session(
    [PREKEY], holder=HOLDER, number=NUMBER, previous=None, random_bytes=random_bytes("session")
)
KEY = _KEYS[PREKEY.node]
HOUR_KEY = advance(KEY, hour_for(NUMBER, SPEC.opened_at) - NUMBER // 3600)
REFUSAL = SessionRefusal(
    authority=PREKEY.authority,
    node=PREKEY.node,
    holder=HOLDER,
    number=NUMBER,
    envelope=seed("envelope").hex(),
)


def session_header(wrapping: SessionWrapping, node: int = NODE) -> SessionHeader:
    return SessionHeader(wrapping, node, HOLDER, NUMBER, SPEC.digest, answer_id(HOLDER))


SHARES = {
    SessionWrapping.VECTOR: Share(ShareKind.VECTOR, np.arange(DIMENSION, dtype="<u8").tobytes()),
    SessionWrapping.NOTICE: Share(
        ShareKind.SEED,
        seed_for(session_header(SessionWrapping.NOTICE), HOUR_KEY, manifest=SPEC.manifest),
    ),
    SessionWrapping.SEED: Share(ShareKind.SEED, seed("an earlier session's")),
}

DICTIONARY = DataDictionary(
    consortium=CONSORTIUM.manifest.consortium,
    authority=CONSORTIUM.manifest.authority,
    sequence=1,
    previous=None,
    variables=(Number(name="age", meaning="age at admission", unit="years", lower=18, upper=100),),
)
# Those that are bound to the authority, and to no version of the manifest.
UNBOUND_DOCUMENTS: dict[str, Signed[Any]] = {
    signed.body.kind: signed
    for signed in (
        named(Role.AUTHORITY, DICTIONARY),
        named(PREKEY.node, PREKEY),
        named(PREKEY.node, REFUSAL),
        named(Role.HOLDER, OPENING),
    )
}
