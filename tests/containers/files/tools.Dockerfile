# Cuts the network of a container from within its name space, and kills its process from outside.
FROM debian:bookworm-slim
RUN apt-get update --quiet \
    && apt-get install --quiet --yes --no-install-recommends iptables \
    && rm -rf /var/lib/apt/lists/*
