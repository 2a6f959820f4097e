"""A data holder's files: its key with its enrolment, and the agent's directory."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, Self

from nacl.signing import SigningKey, VerifyKey
from pydantic import Field, ValidationError

from shoal_holder.keys import next_key_of, read_holder_key
from shoal_holder.site_files import HOLDER_KEY
from shoal_kit.party import Endorsement, public_half
from shoal_kit.private_files import write_new
from shoal_kit.startup import replace
from shoal_kit.tls_certificates import TlsIdentity
from shoal_protocol.trust.roster import MOST_SLOTS
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import VerifyKeyHex, canonical_json, domain

_BARE_KEY: Final = re.compile(rb"\s*[0-9a-fA-F]{64}\s*")


class Enrolment(Model):
    """What a data holder asks of the authority: to be on the roster with so many slots in all.

    `verify_key` signs it first, so whoever hands it over has the key. Where it takes the place of
    another key, that one signs it, too.
    """

    verify_key: VerifyKeyHex
    slots: Annotated[int, Field(ge=1, le=MOST_SLOTS, strict=True)]
    endorsements: Annotated[tuple[Endorsement, ...], Field(max_length=2)] = ()

    @classmethod
    def by(cls, key: SigningKey, *, slots: int, replaces: SigningKey | None = None) -> Self:
        """Return the enrolment of the data holder that has this private key.

        With `replaces`, which is its key on the roster, it asks for the other to take its place.

        Raises:
            ValueError: the number of slots is not positive, or larger than a roster may have.
        """
        asked = cls(verify_key=public_half(key), slots=slots)
        by = [Endorsement.by(each, asked.message) for each in (key, replaces) if each is not None]
        return asked.model_copy(update={"endorsements": tuple(by)})

    @property
    def key(self) -> VerifyKey:
        """Return the key that is to be on the roster."""
        return VerifyKey(bytes.fromhex(self.verify_key))

    @property
    def replaces(self) -> VerifyKey | None:
        """Return the key whose place it takes, or None."""
        others = [VerifyKey(bytes.fromhex(each.verify_key)) for each in self.endorsements[1:]]
        return others[0] if others else None

    @property
    def message(self) -> bytes:
        """Return what is signed."""
        content = self.model_dump(mode="json", exclude={"endorsements"})
        return domain("enrolment") + canonical_json(content)

    def encode(self) -> bytes:
        """Return its file."""
        return self.model_dump_json(indent=2).encode() + b"\n"


def read_enrolment(path: Path) -> Enrolment:
    """Read an enrolment file, and check that it is proven.

    Raises:
        ValueError: it is missing, is no enrolment file or is one of a private key, or a signature
            is not the key's own; nothing of it is shown.
    """
    if not path.is_file():
        raise ValueError(f"{path}: there is no such enrolment file")
    content = path.read_bytes()
    if _BARE_KEY.fullmatch(content):
        raise ValueError(
            f"{path}: this is a private key file: hand over {path.name}.enrolment, and keep "
            "this one secret"
        )
    try:
        found = Enrolment.model_validate_json(content)
    except ValidationError:
        raise ValueError(f"{path} is not an enrolment file") from None
    by = [each.verify_key for each in found.endorsements if each.holds(found.message)]
    if by[:1] != [found.verify_key] or len(by) < len(found.endorsements):
        raise ValueError(
            f"{path}: a signature is not by the key beside it; its owner must make the file anew"
        )
    return found


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
    enrolment, encoded = enrolment_of(path), Enrolment.by(key, slots=slots).encode()
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
        asked = Enrolment.by(read_holder_key(following), slots=slots, replaces=key)
    else:
        asked = Enrolment.by(key, slots=slots)
    replace(enrolment, asked.encode())
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
