"""A data holder's files: its key with its enrolment, and the agent's directory.

An enrolment file has a data holder's public key for the authority, proven, and its number of slots.
The first line is `shoal enrolment 1`. The second is its Ed25519 verify key in hex, how many slots
it asks for in all, and that key's own signature over both in hex: whoever hands the file over has
the key. Where it replaces another key, a third line has `replaces`, the other one in hex, and the
other one's signature over both in hex.
"""

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from shoal_holder.keys import next_key_of, read_holder_key
from shoal_holder.site_files import HOLDER_KEY
from shoal_kit.private_files import write_new
from shoal_kit.startup import replace
from shoal_kit.tls_certificates import TlsIdentity
from shoal_protocol.trust.roster import MOST_SLOTS
from shoal_protocol.wire.encoding import domain

HEADER: Final = "shoal enrolment 1"
_LINE: Final = re.compile(r"([0-9a-f]{64}) ([1-9][0-9]{0,9}) ([0-9a-f]{128})")
_REPLACES: Final = re.compile(r"replaces ([0-9a-f]{64}) ([0-9a-f]{128})")
_BARE_KEY: Final = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True)
class Enrolment:
    """What a data holder asks of the authority: to be on the roster with so many slots in all.

    `replaces` is its key that signed the new one.
    """

    key: VerifyKey
    slots: int
    replaces: VerifyKey | None = None


def encode_enrolment(key: SigningKey, *, slots: int, replaces: SigningKey | None = None) -> bytes:
    """Return the enrolment file of the data holder that has this private key.

    With `replaces`, which is its key on the roster, it asks for the other to take its place.

    Raises:
        ValueError: the number of slots is not positive, or larger than a roster may have.
    """
    if not 0 < slots <= MOST_SLOTS:
        raise ValueError("a data holder has at least one slot, and at most 2^32 - 1")
    public = bytes(key.verify_key)
    proof = key.sign(_proven_bytes(public, slots)).signature
    lines = [HEADER, f"{public.hex()} {slots} {proof.hex()}"]
    if replaces is not None:
        old = bytes(replaces.verify_key)
        consent = replaces.sign(_consented_bytes(old, public)).signature
        lines.append(f"replaces {old.hex()} {consent.hex()}")
    return "".join(f"{line}\n" for line in lines).encode()


def read_enrolment(path: Path) -> Enrolment:
    """Read an enrolment file, and check that it is proven.

    Raises:
        ValueError: it is missing, is no enrolment file or is one of a private key, or a signature
            is not the key's own; nothing of it is shown.
    """
    if not path.is_file():
        raise ValueError(f"{path}: there is no such enrolment file")
    lines = path.read_bytes().decode("ascii", errors="replace").splitlines()
    if any(_BARE_KEY.fullmatch(line.strip()) for line in lines):
        raise ValueError(
            f"{path}: this is a private key file: hand over {path.name}.enrolment, and keep "
            "this one secret"
        )
    if not lines or lines[0] != HEADER:
        raise ValueError(f"{path} is not an enrolment file: its first line is not {HEADER!r}")
    match = _LINE.fullmatch(lines[1]) if len(lines) in (2, 3) else None
    replaces = _REPLACES.fullmatch(lines[2]) if len(lines) == 3 else None
    if match is None or int(match[2]) > MOST_SLOTS or (len(lines) == 3 and replaces is None):
        raise ValueError(
            f"{path}: what follows is not one line with a verify key, a number of slots and their "
            "signature, nor a second one with the key that it replaces"
        )
    key, slots = VerifyKey(bytes.fromhex(match[1])), int(match[2])
    try:
        key.verify(_proven_bytes(bytes(key), slots), bytes.fromhex(match[3]))
        if replaces is None:
            return Enrolment(key, slots)
        old = VerifyKey(bytes.fromhex(replaces[1]))
        old.verify(_consented_bytes(bytes(old), bytes(key)), bytes.fromhex(replaces[2]))
    except BadSignatureError:
        raise ValueError(
            f"{path}: a signature is not by the key beside it; its owner must make the file anew"
        ) from None
    return Enrolment(key, slots, old)


def _proven_bytes(public: bytes, slots: int) -> bytes:
    return domain("enrolment") + public + slots.to_bytes(4, "little")


def _consented_bytes(old: bytes, new: bytes) -> bytes:
    return domain("key_replacement") + old + new


DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def refuse_filled(directory: Path) -> None:
    """Refuse what is there and no empty directory.

    Raises:
        FileExistsError
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise FileExistsError(f"{directory} exists already; nothing was written")


@contextmanager
def new_directory(directory: Path) -> Iterator[Path]:
    """Give a private directory to fill; it becomes `directory`, or is removed after an error.

    Raises:
        FileExistsError: the directory exists, and is not empty or cannot be replaced; nothing is
            overwritten.
    """
    refuse_filled(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    pending = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        yield pending
        try:
            pending.rename(directory)
        except OSError as error:  # it is a link, a mount, or where the command runs
            raise FileExistsError(
                f"{directory} cannot be replaced ({error.strerror}); name one that is not there"
            ) from None
    except BaseException:
        shutil.rmtree(pending)
        raise


def write_agent(directory: Path, key: SigningKey, *, slots: int, tls: TlsIdentity) -> None:
    """Write a new agent's directory, complete or not at all: key, enrolment, TLS.

    Raises:
        FileExistsError: the directory exists; nothing is overwritten.
    """
    with new_directory(directory) as pending:
        write_holder_key(pending / HOLDER_KEY, key, slots=slots)
        write_tls(pending, tls)


def write_tls(directory: Path, tls: TlsIdentity, suffix: str = "") -> None:
    """Write `tls.key` and `tls.crt`, or such as `tls-2.key`, into a directory that has neither."""
    write_new(directory / f"tls{suffix}.key", tls.private_key_pem, private=True)
    write_new(directory / f"tls{suffix}.crt", tls.certificate_pem.encode(), private=False)


def write_holder_key(path: Path, key: SigningKey, *, slots: int) -> Path:
    """Write a data holder's private key, and beside it what the authority enrols it by.

    Returns:
        The enrolment file: the verify key, proven, and how many slots it asks for.

    Raises:
        FileExistsError: one of the two files exists; nothing is overwritten.
        ValueError: the number of slots is not positive.
    """
    enrolment, encoded = enrolment_of(path), encode_enrolment(key, slots=slots)
    if path.exists() or enrolment.exists():
        raise FileExistsError(f"{path} or {enrolment.name} exists already; nothing was written")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_new(path, hex_line(bytes(key)), private=True)
    write_new(enrolment, encoded, private=False)
    return enrolment


def grow(path: Path, *, slots: int) -> Path:
    """Have the enrolment file beside a private key ask for so many slots in all; return it.

    Raises:
        ValueError: the number is not positive, or the file holds no key or is open to others.
        OSError: a file cannot be read or written.
    """
    enrolment, key, following = enrolment_of(path), read_holder_key(path), next_key_of(path)
    if following.exists():
        encoded = encode_enrolment(read_holder_key(following), slots=slots, replaces=key)
    else:
        encoded = encode_enrolment(key, slots=slots)
    replace(enrolment, encoded)
    return enrolment


def rotate(path: Path, key: SigningKey) -> Path:
    """Put a new private key beside one that signs it, and have the enrolment file say so.

    The old key stays in use until a manifest has the new one. A rotation that is under way is gone
    on with: `key` is then not used.

    Returns:
        The enrolment file, which asks for as many slots as before.

    Raises:
        ValueError: a file holds no key or is open to others, or the enrolment file is not one.
        OSError: a file cannot be read or written.
    """
    slots = read_enrolment(enrolment_of(path)).slots
    read_holder_key(path)
    if not next_key_of(path).exists():
        write_new(next_key_of(path), hex_line(bytes(key)), private=True)
    return grow(path, slots=slots)


def enrolment_of(path: Path) -> Path:
    """Return the enrolment file that belongs to a file of a private key."""
    return path.with_name(path.name + ".enrolment")


def write_pin(directory: Path, digest: str, *, replace_other: bool) -> None:
    """Pin a manifest by its digest in a party's or agent's directory.

    Raises:
        ValueError: not a digest, no such directory, or another digest is pinned already and
            `replace_other` is not set.
    """
    if not DIGEST.fullmatch(digest):
        raise ValueError("a digest is 64 hexadecimal digits, in lower case")
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a directory")
    pin = directory / "pin"
    if pin.exists() and pin.read_text().strip() != digest and not replace_other:
        raise ValueError(f"{pin} holds another digest; --replace trusts this one instead")
    replace(pin, f"{digest}\n".encode())


def hex_line(content: bytes) -> bytes:
    """Return a key's or digest's line in a file."""
    return f"{content.hex()}\n".encode()
