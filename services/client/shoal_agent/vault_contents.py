"""Builds the message in which a program hands a vault its contents, in place of files."""

import json
from collections.abc import Collection
from dataclasses import astuple
from pathlib import Path

from shoal_holder.opening import Contents
from shoal_holder.policy import Policy
from shoal_holder.records import Records
from shoal_hosting.manifests.manifest_book import ManifestBook


def contents_of(
    *,
    keys: bytes,
    records: Records,
    policy: Policy,
    book: ManifestBook,
    data_directory: Path,
    accept_loss: str | None,
    without_nodes: Collection[str],
) -> Contents:
    """Return what `shoal_holder.opening.from_contents` takes; `keys` is the next one behind it."""
    versions = book.versions
    return Contents(
        data_directory=str(data_directory),
        pin=versions[0].digest,
        accept_loss=accept_loss,
        without_nodes=tuple(without_nodes),
        parts=(
            policy.model_dump_json().encode(),
            keys,
            json.dumps((records.columns, records.identity and astuple(records.identity))).encode(),
            records.values.astype("<f8").tobytes(),
            records.starts.astype("<i8").tobytes(),
            *(
                piece
                for each in versions
                for piece in (each.signed_manifest.encode(), each.roster.encode())
            ),
        ),
    )
