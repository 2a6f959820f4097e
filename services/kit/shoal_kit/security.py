"""A server's TLS context, from files that are checked to belong together and to the manifest."""

import ssl
from pathlib import Path

import structlog
from cryptography import x509

from shoal_kit.manifest_book import ManifestBook, newest_with
from shoal_kit.party import KeyNotHere, Party
from shoal_kit.private_files import read_private_file
from shoal_kit.startup import StartupRefused
from shoal_protocol.trust.manifest import Consortium

log = structlog.get_logger()


def server_tls(
    certificate_path: Path,
    key_path: Path,
    expected_certificate_pem: str | None,
    context: ssl.SSLContext | None = None,
) -> ssl.SSLContext:
    """Return a server's TLS context (1.2 or newer) for the certificate that the manifest pins.

    None is expected of an agent, which is not in the manifest: its peers pin its owner's file.
    With `context`, that one goes over to it: connections that are open keep theirs.

    Raises:
        StartupRefused: a file cannot be used, the key belongs to another certificate, or the
            certificate is not `expected_certificate_pem`, so no peer would accept it.
    """
    read_private_file(key_path)  # it refuses one that others can reach
    fresh = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # a refusal leaves `context` as it is
    served = context or fresh
    try:
        certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
        if expected_certificate_pem is not None and (
            certificate != x509.load_pem_x509_certificate(expected_certificate_pem.encode())
        ):
            raise StartupRefused(
                f"the certificate in {certificate_path} is not the one that the manifest pins for "
                "this party; provide that one, or have the authority publish a manifest with it"
            )
        for each in (fresh, served):
            each.load_cert_chain(certificate_path, key_path, password="")
    except ssl.SSLError as error:
        raise StartupRefused(
            f"{certificate_path} and {key_path} cannot serve TLS ({error.reason or error}): "
            "provide the two that were made together, in PEM form, the key without a password"
        ) from None
    except OSError as error:
        raise StartupRefused(f"{certificate_path} cannot be read: {error.strerror}") from None
    except ValueError:
        manifest = ", or the manifest lists none for this party"
        raise StartupRefused(
            f"{certificate_path} does not hold a certificate in PEM form"
            f"{'' if expected_certificate_pem is None else manifest}"
        ) from None
    served.minimum_version = ssl.TLSVersion.TLSv1_2
    served.set_alpn_protocols(["http/1.1"])
    return served


class ServedCertificate:
    """The TLS context of a party's service: it goes over to the certificate of each new version."""

    def __init__(self, party: Party, book: ManifestBook) -> None:
        """Serve the certificate of the newest version that lists the party.

        Raises:
            StartupRefused: as `server_tls`.
            KeyNotHere: no file has the certificate.
        """
        self._party, self._book = party, book
        self._version = newest_with(book, party.name)
        self._complained = ""
        self.context = self._load(self._version, None)

    def renew(self) -> None:
        """Serve new connections by the version in force, if it lists another certificate.

        Where its files are missing or broken the old one stays, and the log says why.
        """
        version = newest_with(self._book, self._party.name)
        if version.digest == self._version.digest:
            return
        try:
            if self._listed(version) != self._listed(self._version):
                self._load(version, self.context)
                log.info("the certificate of the manifest in force is served")
        except (StartupRefused, KeyNotHere) as error:
            if self._complained != version.digest:
                log.error("the certificate in the manifest cannot be served", reason=str(error))
            self._complained = version.digest
        else:
            self._version = version

    def _listed(self, version: Consortium) -> str:
        return getattr(version.party(self._party.name), "certificate", "")

    def _load(self, version: Consortium, context: ssl.SSLContext | None) -> ssl.SSLContext:
        return server_tls(*self._party.tls_in(version), self._listed(version), context)
