"""The data dictionary on disk: what a person wrote, and signed versions beside the manifests.

`history/000001-dictionary.json`, ... are written once and never change; `dictionary.json` repeats
the newest version.
"""

from pathlib import Path
from typing import Any, Final

from nacl.signing import SigningKey
from pydantic import TypeAdapter

from shoal_holder.toml_files import read_toml
from shoal_kit.manifest_book import HISTORY
from shoal_kit.manifest_chain import open_chain
from shoal_kit.private_files import write_new
from shoal_kit.startup import replace
from shoal_protocol.trust.dictionary import DataDictionary, Variable, open_dictionary
from shoal_protocol.trust.manifest import AUTHORITY_NAME
from shoal_protocol.wire.documents import Model, Signed, decode, sign
from shoal_protocol.wire.errors import ProtocolError

DICTIONARY: Final = "dictionary.json"


class _Written(Model):
    variables: dict[str, dict[str, Any]]


def read_variables(path: Path) -> tuple[Variable, ...]:
    """Read the variables of a dictionary that a person wrote: `[variables.NAME]` in TOML.

    Raises:
        ValueError: the file is not TOML, or something in it is missing or unknown.
        OSError: it cannot be read.
    """

    def parse(content: dict[str, Any]) -> tuple[Variable, ...]:
        written = _Written.model_validate(content).variables
        named = {name: {"name": name} | each for name, each in written.items()}
        return tuple(TypeAdapter(dict[str, Variable]).validate_python(named).values())

    return read_toml(path, parse)


def versions(directory: Path) -> list[Signed[DataDictionary]]:
    """Return the signed versions of a consortium directory, oldest first, each one checked.

    Raises:
        ValueError: one is broken, forged or missing.
    """
    parties = open_chain(directory)[-1]
    signed: list[Signed[DataDictionary]] = []
    for path in sorted((directory / HISTORY).glob(f"??????-{DICTIONARY}")):
        earlier = signed[-1].body if signed else None
        try:
            signed.append(open_dictionary(path.read_bytes(), parties, earlier))
        except ProtocolError as error:
            raise ValueError(f"{path}: {error}") from error
    return signed


def sign_again(directory: Path, authority: SigningKey) -> None:
    """Have the authority's present key sign all versions; what they say, and digests, stay.

    Raises:
        ValueError: a version is broken, or not of this consortium.
    """
    for path in [*(directory / HISTORY).glob(f"??????-{DICTIONARY}"), directory / DICTIONARY]:
        if path.exists():
            try:
                body = decode(path.read_bytes(), DataDictionary).body
            except ProtocolError as error:
                raise ValueError(f"{path}: {error}") from error
            replace(path, sign(body, AUTHORITY_NAME, authority).encode())
    versions(directory)


def add_version(
    directory: Path, variables: tuple[Variable, ...], authority: SigningKey
) -> Signed[DataDictionary]:
    """Sign and write the version that follows the newest one of a consortium directory.

    Raises:
        ValueError: a variable of the earlier version is gone or changed, or it is another's key.
        FileExistsError: somebody else added that version meanwhile.
    """
    before, parties = versions(directory), open_chain(directory)[-1]
    earlier = before[-1].body if before else None
    try:
        body = DataDictionary(
            consortium=parties.manifest.consortium,
            authority=parties.manifest.identity,
            sequence=1 if earlier is None else earlier.sequence + 1,
            previous=None if earlier is None else earlier.digest,
            variables=variables,
        )
        signed = open_dictionary(sign(body, AUTHORITY_NAME, authority).encode(), parties, earlier)
    except ProtocolError as error:
        raise ValueError(str(error)) from error
    path = directory / HISTORY / f"{signed.body.sequence:06d}-{DICTIONARY}"
    write_new(path, signed.encode(), private=False)
    replace(directory / DICTIONARY, signed.encode())
    return signed
