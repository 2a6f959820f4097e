"""Fields of a document that are signed documents themselves: how they are read and written."""

from typing import Any, Final

from pydantic import PlainSerializer, PlainValidator, ValidationInfo

from shoal_protocol.wire.documents import Document, DocumentT, Signed, read_uncompared


def embedded(kind: type[DocumentT]) -> PlainValidator:
    """Return a validator for a field that is itself a signed document; `WRITTEN` serialises it."""

    def read(value: object, info: ValidationInfo) -> Signed[DocumentT]:
        if isinstance(value, Signed) and isinstance(value.body, kind):
            return value
        # the outer document is checked to be canonical as a whole
        return read_uncompared(value, kind, kept=bool(info.context))

    return PlainValidator(read)


def _to_json(signed: Signed[Document]) -> dict[str, Any]:
    return signed.to_json()


WRITTEN: Final = PlainSerializer(_to_json)
