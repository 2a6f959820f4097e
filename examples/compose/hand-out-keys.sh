#!/bin/sh
# Makes the federation's keys if there are none, and copies to each party's volume what is its own.
# All other containers wait for it: where it refuses, none of them starts. The volumes are mounted
# below the directory that is its argument, or below /.
set -eu
top=${1:-}
refuse() {
  echo "keys: $1. Nothing was started. To begin anew, take all of the trial away first:" \
    "sh examples/compose/trial.sh down" >&2
  exit 1
}

# What an earlier trial left without its keys: a party would take it for its own.
if [ ! -e "$top/federation/all" ]; then
  for left in "$top"/left/*; do
    [ -z "$(ls -A "$left")" ] ||
      refuse "the volume ${left##*/} has data of an earlier trial, whose keys are gone"
  done
fi
shoal quickstart "$top/federation/all" --if-missing --name example --compute 3 \
  --url-template 'https://{name}:8440' --san localhost --san 127.0.0.1 \
  --dictionary "$top/dictionary.toml" \
  --clients hospital-a=400 --clients hospital-b=400 \
  --minimum-cohort 100 --maximum-epsilon 5 --delta 1e-5 --maximum-local-epsilon 2 >/dev/null
cd "$top/federation/all"
pin=parties/trainer/pin # it names the federation
for complete in "$top"/handout/*/.complete "$top"/handout/*/*/.complete; do
  [ ! -e "$complete" ] || cmp -s "$complete" "$pin" ||
    refuse "${complete%/.complete} has keys of an earlier trial"
done

# No party carries its state over from SQLite to PostgreSQL, or back.
check_choice() { # of whom, and where this variant keeps its state
  held=
  [ -z "$(ls "$top/left/$1-data"/*.sqlite 2>/dev/null)" ] || held=SQLite
  [ ! -e "$top/left/$1-data/database" ] || held=PostgreSQL
  [ -z "$held" ] || [ "$held" = "$2" ] ||
    refuse "the trial that is here keeps the state of $1 in $held, and this variant would in $2: \
go on with it as the variant that it was begun as"
}
check_choice compute-0 "${COMPUTE_0_STATE:-SQLite}"
check_choice trainer "${TRAINER_STATE:-SQLite}"

for part in consortium parties/* clients/*; do
  if [ ! -e "$top/handout/$part/.complete" ]; then
    cp -R "$part/." "$top/handout/$part/"
    cp "$pin" "$top/handout/$part/.complete"
    chown -R shoal:shoal "$top/handout/$part"
  fi
done
for site in clients/*; do # their keys are for the vault alone, which has no network
  vault="$top/handout/vaults/${site#clients/}"
  if [ -d "$vault" ] && [ ! -e "$vault/.complete" ]; then
    mv "$top/handout/$site/holder.key" "$vault/"
    cp "$top/handout/$site/pin" "$vault/"
    cp "$pin" "$vault/.complete"
    chown -R shoal:shoal "$vault"
  fi
done
cp parties/trainer/tls.* "$top/handout/trainer-tls/" # for a balancer that ends TLS
chown shoal:shoal "$top"/handout/trainer-tls/*
