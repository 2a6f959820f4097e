"""A courier that holds draws back until they have expired: the vault charges for nothing."""

from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from attacks.noise_twice import ask
from shoal_holder.vault import Vault
from shoal_protocol.crowds.draws import Submission
from shoal_protocol.wire.documents import decode
from tests.world.around_holder import NODES, charged_on, state_of, vault_of
from tests.world.around_holder_crowds import CrowdWorld

with TemporaryDirectory() as made:
    world = CrowdWorld(Path(made))
    holder = world.holder(without_nodes=[f"compute-{node}" for node in range(NODES)])
    vault, expired = vault_of(holder), set[str]()
    for _ in range(8):
        tried: set[str] = set()
        while (answer := ask(vault, Vault.due, without=tuple(tried))).value != ():
            for letter in answer.value or ():
                tried.add(letter.id)
                if letter.id.startswith("contribution/"):
                    sent = decode(letter.body, Submission).body
                    if world.clock() >= sent.draw.body.expires_at:
                        expired.add(sent.digest)
                        told = {
                            "status": 410,
                            "body": b'{"type":"urn:shoal:problem:session-expired"}',
                        }
                        ask(vault, Vault.settle, letter=letter.id, **told)
                        continue
                method = "POST" if letter.body else "GET"
                url = f"https://trainer{letter.path}"
                said = world.crowds.answer(httpx.Request(method, url, content=letter.body))
                if letter.id.startswith("draw/"):
                    world.clock.move(61)
                told = {"status": said.status_code, "body": said.content}
                ask(vault, Vault.settle, letter=letter.id, **told)
        world.clock.move(60)
    charged = charged_on(state_of(holder))
    print(f"{len(charged)} contributions charged, {len(expired)} of them to draws that had expired")
    vault.close()
