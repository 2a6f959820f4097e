"""Files that a service must be able to trust before it starts."""

import os
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from shoal_kit.private_files import read_private_file
from shoal_kit.security import server_tls
from shoal_kit.startup import StartupRefused
from shoal_kit.tls_certificates import pinned_tls
from tests.world.tls_identities import make_identity


def test_a_file_of_its_owner_alone_is_read(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    path.write_bytes(b"seed")
    path.chmod(0o600)
    assert read_private_file(path) == b"seed"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610, 0o601, 0o620, 0o602, 0o777])
def test_a_file_that_others_can_reach_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "signing.key"
    path.write_bytes(b"seed")
    path.chmod(mode)
    with pytest.raises(StartupRefused, match=f"{path}.*{mode:04o}.*chmod 600") as refusal:
        read_private_file(path)
    assert "seed" not in str(refusal.value)


def test_a_pipe_is_refused_without_waiting_for_its_other_end(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o600)
    with pytest.raises(StartupRefused, match="not a regular file"):
        read_private_file(path)


def test_a_link_counts_as_the_file_it_leads_to(tmp_path: Path) -> None:
    secret, link = tmp_path / "secret", tmp_path / "link"
    secret.write_bytes(b"seed")
    secret.chmod(0o644)
    link.symlink_to(secret)
    with pytest.raises(StartupRefused, match="0644"):
        read_private_file(link)
    secret.chmod(0o600)
    assert read_private_file(link) == b"seed"


def test_a_certificate_that_is_not_pinned_is_refused_naming_it(tmp_path: Path) -> None:
    identity, pinned = make_identity(), make_identity()
    certificate, key = identity.write(tmp_path)
    with pytest.raises(StartupRefused, match=f"{certificate} is not the one that the manifest"):
        server_tls(certificate, key, pinned.pem)


@pytest.mark.parametrize("broken", ["tls.crt", "tls.key"])
def test_a_file_that_is_not_pem_is_refused_by_name(tmp_path: Path, broken: str) -> None:
    identity = make_identity()
    certificate, key = identity.write(tmp_path)
    (tmp_path / broken).write_text("s3cret")
    with pytest.raises(StartupRefused, match=f"{broken}.*PEM") as refusal:
        server_tls(certificate, key, identity.pem)
    assert "s3cret" not in str(refusal.value)


def test_a_key_of_another_certificate_is_refused_and_what_is_served_stays(tmp_path: Path) -> None:
    identity, other = make_identity(), make_identity()
    certificate, key = identity.write(tmp_path)
    served = server_tls(certificate, key, identity.pem)
    assert served.minimum_version == ssl.TLSVersion.TLSv1_2
    certificate.write_text(other.pem)
    with pytest.raises(StartupRefused, match="made together"):
        server_tls(certificate, key, other.pem, served)
    ends = (ssl.MemoryBIO(), ssl.MemoryBIO())
    client_context = pinned_tls(identity.pem)
    server = served.wrap_bio(*ends, server_side=True)
    client = client_context.wrap_bio(*ends[::-1], server_hostname="127.0.0.1")
    for _ in range(3):
        for each in (client, server):
            with suppress(ssl.SSLWantReadError):
                each.do_handshake()
    assert client.version() == "TLSv1.3"
