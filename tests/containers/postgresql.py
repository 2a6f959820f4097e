"""PostgreSQL from the distribution, for where the official image cannot be fetched."""

from tests.containers.compose import ROOT, Compose

_SERVICE = """
  {service}:
    image: shoal-postgres:{tag}
    user: postgres
    entrypoint: ["bash", "-c"]
    command:
      - |
        PATH=$$PATH:$$(echo /usr/lib/postgresql/*/bin)
        [ -f /var/lib/postgresql/data/PG_VERSION ] || initdb -D /var/lib/postgresql/data -U shoal \
          --auth-host=scram-sha-256 --pwfile=<(echo "$$POSTGRES_PASSWORD")
        grep -q ^host.all.all.all /var/lib/postgresql/data/pg_hba.conf \
          || echo "host all all all scram-sha-256" >> /var/lib/postgresql/data/pg_hba.conf
        exec postgres -D /var/lib/postgresql/data -c listen_addresses=* -k /tmp
    environment:
      POSTGRES_DB: shoal
    build:
      dockerfile_inline: |
        FROM debian:bookworm-slim
        RUN apt-get update && apt-get install --yes --no-install-recommends postgresql \
            && install -d -o postgres /var/lib/postgresql/data && rm -rf /var/lib/apt/lists/*
        ENV PATH=$$PATH:/usr/lib/postgresql/15/bin
"""


def image_of(tag: str) -> str:
    """Return the name of the image that `in_place_of` has built."""
    return f"shoal-postgres:{tag}"


def in_place_of(service: str, tag: str) -> str:
    """Return a part of an override by which the distribution's server is that service."""
    return _SERVICE.format(service=service, tag=tag)


def settings_of(environment_file: str) -> dict[str, str]:
    """Return the settings in a file of examples/compose, for the distribution's server."""
    lines = (ROOT / "examples/compose" / environment_file).read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    # initdb makes a database of the server's own name and no other
    return {
        name: value.removesuffix("/shoal") + "/postgres" if name.endswith("_URL") else value
        for name, value in settings.items()
    }


def ask(compose: Compose, service: str, query: str) -> str:
    """Return what the server answers to a query that has one value."""
    asked = ("psql", "--host", "/tmp", "--username", "shoal", "postgres", "-Atc", query)
    return compose.execute(service, *asked).strip()
