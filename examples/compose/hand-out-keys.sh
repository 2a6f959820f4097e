#!/bin/sh
# Makes the federation's keys if there are none, and copies to each party's volume what is its own.
set -eu
shoal quickstart /federation/all --if-missing --name example --compute 3 \
  --url-template 'https://{name}:8440' --san localhost --san 127.0.0.1 \
  --dictionary /dictionary.toml \
  --clients hospital-a=400 --clients hospital-b=400 \
  --minimum-cohort 100 --maximum-epsilon 5 --delta 1e-5 --maximum-local-epsilon 2 >/dev/null
cd /federation/all
for part in consortium parties/* clients/*; do
  if [ ! -e "/handout/$part/.complete" ]; then
    cp -R "$part/." "/handout/$part/"
    touch "/handout/$part/.complete"
    chown -R shoal:shoal "/handout/$part"
  fi
done
for site in clients/*; do # their keys are for the vault alone, which has no network
  vault="/handout/vaults/${site#clients/}"
  if [ -d "$vault" ] && [ ! -e "$vault/.complete" ]; then
    mv "/handout/$site/holder.key" "$vault/"
    cp "/handout/$site/pin" "$vault/"
    touch "$vault/.complete"
    chown -R shoal:shoal "$vault"
  fi
done
cp parties/trainer/tls.* /handout/trainer-tls/ # for a balancer that ends TLS
chown shoal:shoal /handout/trainer-tls/*
