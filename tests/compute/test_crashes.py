"""A node that is killed at any moment goes on where it was, and never contradicts itself."""

from pathlib import Path

from sqlalchemy import create_engine, text

from shoal_protocol.rounds.attestations import Holdings
from tests.world.around_node import (
    Federation,
    envelopes,
    holdings,
)


def _is(signed: object, kind: type, signer: str | None = None) -> bool:
    return isinstance(signed.body, kind) and signer in (None, signed.signer)


async def test_a_node_that_was_set_back_does_not_attest_a_second_time(
    federation: Federation,
) -> None:
    spec = federation.spec()
    await federation.announce(spec, [0])
    await federation.upload_all(spec, range(11), nodes=[0])
    # what it attested before an old backup of its disk was put back
    await federation.gossip(0, [holdings(spec.body, "compute-0", range(12))])
    federation.clock.move(60)
    await federation.step([0], times=2)
    assert (await federation.state(0, spec))["failure"]["code"] == "misconduct"
    documents = await federation.documents(0, spec)
    assert [h.body.count for h in documents if _is(h, Holdings)] == [12]


async def test_no_payload_is_left_on_disk_when_a_round_is_over(
    federation: Federation, tmp_path: Path
) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec, range(11))
    engine = create_engine(f"sqlite:///{tmp_path}/0/service.sqlite")
    with engine.connect() as db:
        rows = db.execute(text("SELECT payload FROM shares")).scalars().all()
    engine.dispose()
    assert len(rows) == 11
    assert all(payload in files_of(tmp_path / "0") for payload in rows)
    federation.clock.move(60)
    await federation.step(times=3)
    assert (await federation.state(0, spec))["phase"] == "published"
    left = files_of(tmp_path / "0")
    assert not any(payload in left for payload in rows)
    # what proves that the share was sent is still there
    assert envelopes(spec.body, 3)[0][-64:] in left


def files_of(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.glob("service.sqlite*"))
