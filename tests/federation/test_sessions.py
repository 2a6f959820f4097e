"""Sessions at work: what is lost, restored or turned over costs an envelope, never an answer."""

import base64
import json
import shutil
import sqlite3
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from nacl.public import PrivateKey

from shoal_compute.assembly import assemble
from shoal_compute.session_secrets import Secrets
from shoal_compute.sessions import FILE as NODE_FILE
from shoal_holder.sessions.vault import FILE as HOLDER_FILE
from shoal_hosting.party import load_party
from shoal_hosting.startup import StartupRefused
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.session_envelope import (
    SessionWrapping,
    is_under_session,
    parse_under_session,
)
from shoal_protocol.sharing.sessions import (
    Opening,
    Prekey,
    advance,
    first_key,
    hour_for,
)
from shoal_protocol.sharing.threshold import ThresholdSharing
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import ProtocolError
from tests.world.audit import audit
from tests.world.federation import PRIVACY, Federation
from tests.world.trust import HOLDER_POLICY, SITES, TASK_WITH_PROJECTION, Trust, make_trust
from tests.world.wire import Fault, Message, Rule

CLIENTS = sum(SITES.values())
ALLOWING = {"policy": HOLDER_POLICY.model_copy(update={"allow_sessions": True})}
HOLDERS = {site: ALLOWING for site in SITES}
NODE, SITE = "compute-1", "clinic-a"
HOUR = 3600.0
CHEAP = PRIVACY.model_copy(update={"epsilon": 0.5})  # so that several fit the caps


def sent(federation: Federation, *, receiver: str | None = None) -> Counter[str]:
    """Count by their wrapping the envelopes that were sent."""
    found: Counter[str] = Counter()
    for message in federation.wire.log:
        if message.path.endswith("/shares") and receiver in (None, message.receiver):
            under = is_under_session(message.body)
            found[SessionWrapping(message.body[6]).name if under else "BOX"] += 1
    return found


def openings(federation: Federation) -> list[Opening]:
    """Return the openings that nodes took, without repetitions."""
    found = {
        message.body: decode(message.body, Opening).body
        for message in federation.wire.log
        if message.path == "/v1/openings" and message.status == 201
    }
    return list(found.values())


async def finish(federation: Federation, job: str) -> int:
    state = await federation.finish(job)
    assert state["phase"] == "finished", state
    results = await audit(federation)
    [result] = [results[each["round"]] for each in state["rounds"]]
    assert result is not None
    return int(result["cohort_size"])


async def test_a_job_by_sessions_sends_no_sealed_box_but_the_openings(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path, holders=HOLDERS) as federation:
        report = await federation.learn(wrapping="session", task=TASK_WITH_PROJECTION)
        await audit(federation)
        assert report.cohort_sizes == (CLIENTS, CLIENTS)
        assert sent(federation) == {"VECTOR": 2 * len(SITES), "NOTICE": 4 * len(SITES)}
        assert len(openings(federation)) == len(SITES)
        notices = [
            len(each.body)
            for each in federation.wire.log
            if each.path.endswith("/shares") and each.body[6] == SessionWrapping.NOTICE
        ]
        assert max(notices) <= 100


async def test_who_allows_no_sessions_takes_part_by_sealed_boxes(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path, holders={SITE: ALLOWING}) as federation:
        assert await finish(federation, await federation.submit(wrapping="session")) == CLIENTS
        assert sent(federation) == {"VECTOR": 1, "NOTICE": 2, "BOX": 3 * (len(SITES) - 1)}


async def test_sessions_are_not_used_where_the_job_does_not_ask_for_them(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path, holders=HOLDERS) as federation:
        assert await finish(federation, await federation.submit()) == CLIENTS
        assert set(sent(federation)) == {"BOX"}
        assert openings(federation) == []


async def test_sessions_serve_threshold_sharing_too(tmp_path: Path) -> None:
    trust = make_trust(tmp_path / "trust", nodes=3, minimum_threshold=2)
    policy = ALLOWING["policy"].model_copy(update={"minimum_threshold": 2})
    holders = {site: {"policy": policy} for site in SITES}
    async with Federation(trust, tmp_path / "run", holders=holders) as federation:
        job = await federation.submit(wrapping="session", sharing=ThresholdSharing(threshold=2))
        assert await finish(federation, job) == CLIENTS
        assert sent(federation) == {"VECTOR": 2 * len(SITES), "NOTICE": len(SITES)}


async def test_whoever_starts_again_goes_on_with_the_same_session(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path, holders=HOLDERS) as federation:
        job, _ = await federation.collecting(wrapping="session")
        for name in (SITE, *federation.nodes):
            await federation.crash(name)
        assert await finish(federation, job) == CLIENTS
        assert "BOX" not in sent(federation)
        assert len(openings(federation)) == len(SITES)


async def test_the_same_answer_is_sent_again_after_a_restart_in_the_same_bytes(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path, holders=HOLDERS) as federation:
        federation.wire.rules.append(
            Rule(Fault.SENDER_DIES_AFTER, SITE, NODE, path="/shares$", nth=(0,))
        )
        job = await federation.submit(wrapping="session")
        assert await finish(federation, job) == CLIENTS
        mine = [
            each.body
            for each in federation.wire.log
            if each.path.endswith("/shares") and (each.sender, each.receiver) == (SITE, NODE)
        ]
        assert len(mine) == 2
        assert len(set(mine)) == 1


async def test_a_node_that_lost_its_disk_says_so_signed_and_gets_sealed_boxes(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path, holders=HOLDERS) as federation:
        job, _ = await federation.collecting(wrapping="session")
        await federation.crash(NODE)
        shutil.rmtree(tmp_path / NODE)
        for _ in range(30):  # until they ask what it holds
            await federation.step()
            federation.clock.move(1.0)
        assert await finish(federation, job) == CLIENTS
        refused = [each.path for each in federation.wire.log if each.path == "/v1/refusals"]
        assert len(refused) == len(SITES)
        assert sent(federation, receiver=NODE)["BOX"] == len(SITES)
        assert "BOX" not in sent(federation, receiver="compute-0")


async def unanswered(federation: Federation) -> str:
    """Begin a job; the nodes have what the site sent, and it does not know; it goes down."""
    lost = Rule(Fault.ANSWER_LOST, SITE, path="/shares$")
    federation.wire.rules.append(lost)
    job, _ = await federation.collecting(wrapping="session")
    await federation.step()
    await federation.crash(SITE)
    federation.wire.rules.remove(lost)
    return job


def sent_by_site(federation: Federation) -> dict[tuple[str, int], int | None]:
    """Return the last status of each envelope of the site's, by node and code of the wrapping."""
    return {
        (each.receiver, each.body[6]): each.status
        for each in federation.wire.log
        if each.path.endswith("/shares") and each.sender == SITE
    }


async def test_an_answer_that_nodes_have_is_acknowledged_under_a_later_session(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path, holders=HOLDERS) as federation:
        job = await unanswered(federation)
        (tmp_path / SITE / HOLDER_FILE).unlink()
        assert await finish(federation, job) == CLIENTS
        assert len(openings(federation)) == len(SITES) + 1
        found = sent_by_site(federation)
        explicit = [status for (_, code), status in found.items() if code == SessionWrapping.SEED]
        assert explicit == [200, 200]
        assert "BOX" not in sent(federation)


async def test_an_answer_that_a_node_has_is_acknowledged_in_a_sealed_box(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path, holders=HOLDERS) as federation:
        job = await unanswered(federation)
        path = tmp_path / SITE / HOLDER_FILE
        path.write_text(path.read_text().replace('"outcome":"acknowledged"', '"outcome":"x"'))
        assert await finish(federation, job) == CLIENTS
        found = sent_by_site(federation)
        boxes = [status for (_, code), status in found.items() if code in (0, 1)]
        assert boxes == [200, 200, 200]


@pytest.mark.parametrize("path", ["/v1/prekey$", "/v1/openings$", "/shares$"])
@pytest.mark.parametrize(
    "fault",
    [
        *(Fault.RECEIVER_DIES_BEFORE, Fault.RECEIVER_DIES_AFTER),
        *(Fault.SENDER_DIES_BEFORE, Fault.SENDER_DIES_AFTER),
    ],
    ids=lambda fault: fault.name,
)
async def test_whoever_dies_at_a_message_of_sessions_loses_no_answer(
    trust: Trust, tmp_path: Path, fault: Fault, path: str
) -> None:
    """Two of each kind: of two sites, to two nodes."""
    async with Federation(trust, tmp_path, holders=HOLDERS) as federation:
        federation.wire.rules += [
            Rule(fault, SITE, NODE, path, nth=(0,)),
            Rule(fault, "clinic-c", "compute-2", path, nth=(0,)),
        ]
        job = await federation.submit(wrapping="session")
        assert await finish(federation, job) == CLIENTS
        assert "BOX" not in sent(federation)


async def test_openings_may_come_together_and_each_is_judged_by_itself(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path, holders=HOLDERS) as federation:
        await federation.learn(wrapping="session")
        [first, second, *_] = dict.fromkeys(
            each.body for each in federation.wire.log if each.path == "/v1/openings"
        )
        forged = json.loads(first) | {"signature": json.loads(second)["signature"]}
        broken = json.loads(first) | {"signer": "nobody"}
        documents = [json.loads(first), forged, 7, broken, json.loads(second)]
        answer = await federation.ask(
            NODE, "/v1/openings", method="POST", content=canonical_json({"documents": documents})
        )
        outcomes = answer.json()["outcomes"]
        assert [each["status"] for each in outcomes] == [200, 403, 422, 403, 200]
        for listed in ({"documents": {}}, {"documents": [], "more": []}):
            answer = await federation.ask(
                NODE, "/v1/openings", method="POST", content=canonical_json(listed)
            )
            assert answer.status_code == 422
        assert await finish(federation, await federation.submit(wrapping="session")) == CLIENTS
        assert "BOX" not in sent(federation)


async def test_a_lower_number_is_refused_for_ever(trust: Trust, tmp_path: Path) -> None:
    async with Federation(trust, tmp_path, holders=HOLDERS) as federation:
        await federation.learn(wrapping="session")
        old = [each.body for each in federation.wire.log if each.path == "/v1/openings"]
        federation.clock.move(60.0)
        for site in SITES:
            await federation.crash(site)
            (tmp_path / site / HOLDER_FILE).unlink()
        await federation.learn(wrapping="session")
        await federation.crash(NODE)
        for opening in old:
            answer = await federation.ask(NODE, "/v1/openings", method="POST", content=opening)
            assert answer.status_code == 409
            assert answer.json()["type"].endswith("refused-opening")


async def test_a_restored_node_takes_no_session_out_of_its_backup(
    trust: Trust, tmp_path: Path
) -> None:
    """Its operator accepts the loss, and what was erased since is in the backup."""
    async with Federation(trust, tmp_path, holders=HOLDERS) as federation:
        await federation.learn(wrapping="session")
        await federation.crash(NODE)
        federation.absent.add(NODE)
        given = {
            "party": load_party(trust.directory / "parties" / NODE),
            "book": federation._book(NODE),
            "data_directory": tmp_path / NODE,
            "database_url": None,
            "clock": federation.clock.of(NODE),
        }
        kept = assemble(**given)
        known = kept.sessions._known
        assert [each.key is None for each in known.values()] == [False] * len(SITES)
        await kept.close()
        with pytest.raises(StartupRefused):
            (tmp_path / NODE / "compute.sqlite").rename(tmp_path / "gone")
            assemble(**given)
        (tmp_path / "gone").rename(tmp_path / NODE / "compute.sqlite")
        restored = assemble(**given, accept_loss="0" * 16)
        known = restored.sessions._known
        assert [each.key for each in known.values()] == [None] * len(SITES)
        assert [each.number for each in known.values()] == [
            each.number for each in openings(federation)
        ]
        await restored.close()


async def test_prekeys_turn_over_and_sessions_outlive_them(trust: Trust, tmp_path: Path) -> None:
    async with Federation(trust, tmp_path, holders=HOLDERS) as federation:
        await federation.learn(wrapping="session")
        before = (await federation.ask(NODE, "/v1/prekey")).content
        for _ in range(5):
            federation.clock.move(HOUR)
            await federation.step()
        assert (await federation.ask(NODE, "/v1/prekey")).content != before
        await federation.learn(wrapping="session")
        await audit(federation)
        assert "BOX" not in sent(federation)
        assert len(openings(federation)) == len(SITES)


async def test_a_session_is_opened_anew_after_a_day(trust: Trust, tmp_path: Path) -> None:
    async with Federation(trust, tmp_path, holders=HOLDERS) as federation:
        await federation.learn(wrapping="session")
        federation.clock.move(25 * HOUR)
        await federation.step()
        await federation.learn(wrapping="session")
        first, second = openings(federation)[: len(SITES)], openings(federation)[len(SITES) :]
        assert len(second) == len(SITES)
        assert {each.previous for each in second} == {each.digest for each in first}


async def test_a_node_that_forgets_every_session_gets_one_opening_an_hour(
    trust: Trust, tmp_path: Path
) -> None:
    """Meanwhile it gets sealed boxes; what is replayed to it is refused by its number."""
    async with Federation(trust, tmp_path, holders=HOLDERS) as federation:
        job, _ = await federation.collecting(wrapping="session", privacy=CHEAP)
        assert await finish(federation, job) == CLIENTS
        began, first = federation.clock.now, len(openings(federation))
        assert first == len(SITES)
        for _ in range(2):
            await federation.crash(NODE)
            (tmp_path / NODE / NODE_FILE).unlink()
            job, _ = await federation.collecting(wrapping="session", privacy=CHEAP)
            assert await finish(federation, job) == CLIENTS
            assert (federation.clock.now - began).total_seconds() < HOUR
            assert len(openings(federation)) == first
        assert sent(federation, receiver=NODE)["BOX"] == 2 * len(SITES)
        replayed = [each.body for each in federation.wire.log if each.path == "/v1/openings"]
        for opening in replayed:
            answer = await federation.ask(NODE, "/v1/openings", method="POST", content=opening)
            assert answer.status_code in (200, 409)  # it knows it, or refuses it
        federation.clock.move(HOUR)
        job, _ = await federation.collecting(wrapping="session", privacy=CHEAP)
        assert await finish(federation, job) == CLIENTS
        assert len(openings(federation)) == 2 * first
        assert sent(federation, receiver=NODE)["BOX"] == 2 * len(SITES)


async def test_after_the_erasure_both_disks_and_all_traffic_open_nothing(
    trust: Trust, tmp_path: Path
) -> None:
    """Whoever takes the disks of vaults and nodes tries every key there is on every message."""
    async with Federation(trust, tmp_path, holders=HOLDERS) as federation:
        await federation.learn(wrapping="session")
        await audit(federation)  # the keys that are tried below are right ones at first
        traffic = list(federation.wire.log)
        early = everything_opened(federation, tmp_path, traffic)
        for _ in range(4):  # beyond the prekeys' window
            federation.clock.move(HOUR)
            await federation.step()
        assert early == 3 * len(SITES)
        assert everything_opened(federation, tmp_path, traffic) == 0
        await federation.learn(wrapping="session")  # the sessions go on all the same
        await audit(federation)
        assert "BOX" not in sent(federation)
        assert everything_opened(federation, tmp_path, traffic) == 0


def everything_opened(federation: Federation, directory: Path, traffic: list[Message]) -> int:
    """Return how many envelopes open by the keys that disks still hold, the nodes' box keys too."""
    chains: dict[tuple[int, int, str], tuple[int, bytes]] = {}
    roster = federation.trust.consortium.roster
    sessions = [decode(each.body, Opening).body for each in traffic if each.path == "/v1/openings"]
    prekeys = [decode(each.answer, Prekey).body for each in traffic if each.path == "/v1/prekey"]
    for node in federation.nodes:
        secrets = Secrets.read(directory / node / NODE_FILE)
        party = load_party(federation.trust.directory / "parties" / node)
        assert party.box_private_key is not None
        privates = [bytes(party.box_private_key)]
        privates += [bytes.fromhex(each.private) for each in secrets.prekeys]
        for opening in sessions:
            for prekey in prekeys:
                for private in privates:
                    try:
                        own = prekey.model_copy(
                            update={"box_key": bytes(PrivateKey(private).public_key).hex()}
                        )
                        own.__dict__["digest"] = prekey.digest
                        key = first_key(opening, own, private)
                    except ProtocolError:
                        continue
                    place = (opening.holder, opening.number, prekey.node)
                    chains[place] = (opening.number // 3600, key)
        with sqlite3.connect(directory / node / "compute.sqlite") as database:
            for holder, number, hour, generation, box in database.execute(
                "SELECT holder, number, hour, generation, key FROM sessions"
            ):
                place = b"".join(part.to_bytes(4, "little") for part in (holder, number, hour))
                key = secrets.decrypt(generation, box, place)
                if key is not None:
                    chains.setdefault((holder, number, node), (hour, key))
    for site in SITES:
        session = json.loads((directory / site / HOLDER_FILE).read_text())
        holder = roster.holder_with(federation.trust.key(site).verify_key)
        assert holder is not None
        for node, chain in session["chains"].items():
            chains.setdefault(
                (holder, session["number"], node), (chain["hour"], bytes.fromhex(chain["key"]))
            )
    specs = {
        signed.digest: signed.body
        for signed in (
            decode(each.body, RoundSpec) for each in traffic if each.path == "/v1/rounds"
        )
    }
    opened = 0
    for message in traffic:
        if not message.path.endswith("/shares"):
            continue
        envelope = parse_under_session(message.body)
        header, spec = envelope.header, specs[envelope.header.round_id]
        hour, key = chains[header.holder, header.number, message.receiver]
        steps = hour_for(header.number, spec.opened_at) - hour
        tried = [advance(key, max(0, steps)), key]
        for each in tried:
            try:
                envelope.open(each, manifest=spec.manifest)
            except ProtocolError:
                continue
            opened += 1
            break
    return opened


async def test_after_the_erasure_no_byte_of_a_share_or_a_key_is_on_either_disk(
    trust: Trust, tmp_path: Path
) -> None:
    """Not in pages that a database freed, nor in its log, nor in the file that keys hang on."""
    async with Federation(trust, tmp_path / "disks", holders=HOLDERS) as federation:
        late = federation.wire.cut("clinic-b", NODE, "/shares$")  # the round stays open
        job, _ = await federation.collecting(wrapping="session")
        for _ in range(3):
            await federation.step()
            federation.clock.move(1.0)
        secrets = session_secrets(federation, tmp_path / "disks")
        early = found_on_disk(tmp_path, secrets)
        assert {kind for kind, _ in early} == {"share", "first key", "prekey", "stored under"}
        assert {place for kind, place in early if kind == "share"} == {*SITES, *federation.nodes}

        federation.wire.rules.remove(late)
        assert await finish(federation, job) == CLIENTS
        assert "share" not in {kind for kind, _ in found_on_disk(tmp_path, secrets)}
        for _ in range(4):  # beyond the prekeys' window
            federation.clock.move(HOUR)
            await federation.step()
        assert found_on_disk(tmp_path, secrets) == set()


def session_secrets(federation: Federation, disks: Path) -> list[tuple[str, bytes]]:
    """Return what is to be erased: shares on their way, first keys, and nodes' secrets."""
    specs = {
        signed.digest: signed.body
        for signed in (
            decode(each.body, RoundSpec)
            for each in federation.wire.log
            if each.path == "/v1/rounds"
        )
    }
    found = [("first key", key) for key in federation.session_keys.values()]
    for message in federation.wire.log:
        if message.path.endswith("/shares"):
            envelope = parse_under_session(message.body)
            header, spec = envelope.header, specs[envelope.header.round_id]
            first = federation.session_keys[header.holder, header.number, message.receiver]
            steps = hour_for(header.number, spec.opened_at) - header.number // 3600
            key = advance(first, steps)
            share = envelope.open(key, manifest=spec.manifest).payload
            found += [("share", share[:32]), ("share", share[-32:])]
    for node in federation.nodes:
        secrets = Secrets.read(disks / node / NODE_FILE)
        found += [("prekey", bytes.fromhex(each.private)) for each in secrets.prekeys]
        found += [("stored under", bytes.fromhex(each)) for each in secrets.keys.values()]
    return found


def found_on_disk(directory: Path, secrets: list[tuple[str, bytes]]) -> set[tuple[str, str]]:
    """Return what kinds of these are in files, and in whose: as bytes, in hex or in base64."""
    copy = directory / "copy"
    # by another process: one that closes a database's file here gives up SQLite's locks on it
    subprocess.run(["cp", "-r", directory / "disks", copy], check=True)
    found = set()
    for path in copy.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        for kind, secret in secrets:
            forms = (secret, secret.hex().encode(), base64.b64encode(secret[:30]))
            if any(each in content for each in forms):
                found.add((kind, path.relative_to(copy).parts[0]))
    shutil.rmtree(copy)
    return found
