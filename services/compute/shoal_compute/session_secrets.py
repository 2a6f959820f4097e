"""The one small file that a Compute node's sessions hang on: prekeys, and what encrypts their keys.

A database does not erase: old pages, its log and the disk keep what was in them. So sessions' keys
are in the database only under a key that is here, and this file is overwritten and replaced.
"""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Literal, Self

import nacl.utils
from nacl import bindings
from pydantic import Field, ValidationError

from shoal_hosting.private_files import replace_and_erase
from shoal_protocol.sharing.sessions import KEY_BYTES, Prekey, derive
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.numbers import Count

LIVES: Final = timedelta(hours=2)
RENEWED_AFTER: Final = timedelta(hours=1)
_NONCE: Final = bytes(bindings.crypto_aead_chacha20poly1305_ietf_NPUBBYTES)


class OwnPrekey(Model):
    """A prekey, and its private key in hex."""

    public: Prekey
    private: str = Field(repr=False)


class Secrets(Model):
    """What is in the file; `keys` by their generation, in hex: two while one replaces the other."""

    version: Literal[1] = 1
    keys: dict[Count, str] = Field(repr=False)
    prekeys: tuple[OwnPrekey, ...] = ()

    @classmethod
    def fresh(cls) -> Self:
        """Return secrets under which nothing was encrypted so far."""
        generation = int.from_bytes(nacl.utils.random(3), "little")
        return cls(keys={generation: nacl.utils.random(KEY_BYTES).hex()})

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return what is in the file; fresh secrets if there is none that can be read.

        Sessions and prekeys are lost then, and data holders open new ones.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return cls.fresh()

    def write(self, path: Path) -> None:
        """Put this in the place of what is in the file, durably."""
        replace_and_erase(path, self.model_dump_json().encode())

    @property
    def generation(self) -> int:
        """Return the generation of the newest key."""
        return max(self.keys)

    def with_next_key(self) -> Self:
        """Return these with a further key."""
        fresh = {self.generation + 1: nacl.utils.random(KEY_BYTES).hex()}
        return self.model_copy(update={"keys": self.keys | fresh})

    def without_old_keys(self) -> Self:
        """Return these with the newest key alone."""
        return self.model_copy(update={"keys": {self.generation: self.keys[self.generation]}})

    def with_prekeys_at(self, now: datetime, *, authority: str, node: str) -> Self:
        """Return these without the prekeys that have had their time, and with one that has not."""
        valid = [each for each in self.prekeys if each.public.is_valid(now)]
        if not valid or now - valid[-1].public.valid_from >= RENEWED_AFTER:
            private = nacl.utils.random(bindings.crypto_box_SECRETKEYBYTES)
            public = Prekey(
                authority=authority,
                node=node,
                box_key=bindings.crypto_scalarmult_base(private).hex(),
                valid_from=now,
                valid_until=now + LIVES,
            )
            valid.append(OwnPrekey(public=public, private=private.hex()))
        elif len(valid) == len(self.prekeys):  # as nearly always
            return self
        return self.model_copy(update={"prekeys": tuple(valid)})

    def encrypt(self, key: bytes, place: bytes) -> tuple[int, bytes]:
        """Return a session's key encrypted, and by which generation; a `place` has one key ever."""
        own = self._for(self.generation, place)
        box = bindings.crypto_aead_chacha20poly1305_ietf_encrypt(key, place, _NONCE, own)
        return self.generation, box

    def decrypt(self, generation: int, box: bytes, place: bytes) -> bytes | None:
        """Return a session's key; None if what encrypted it is gone."""
        if generation not in self.keys:
            return None
        own = self._for(generation, place)
        return bindings.crypto_aead_chacha20poly1305_ietf_decrypt(box, place, _NONCE, own)

    def _for(self, generation: int, place: bytes) -> bytes:
        return derive(bytes.fromhex(self.keys[generation]), b"stored", place)
