#!/bin/sh
# Starts the trial federation in containers, or one of its variants, and takes it away again:
#   sh examples/compose/trial.sh up [replicas|crowd|monitoring] [options of `docker compose up`]
#   sh examples/compose/trial.sh down
# `up` first looks at what is there, and refuses before any container is started or stopped if keys or
# state of an earlier trial do not fit. `down` takes away all of every variant, its data too.
set -eu
cd "$(dirname "$0")/../.."
do_this=${1:-}
[ $# -eq 0 ] || shift
case $do_this in
  up)
    compose() { docker compose "$@"; }
    case ${1:-} in
      "" | -*) ;;
      *)
        file=examples/compose/$1.env
        shift
        [ -e "$file" ] || {
          echo "there is no $file: the variants are replicas, crowd and monitoring" >&2
          exit 2
        }
        compose() { docker compose --env-file "$file" "$@"; }
        ;;
    esac
    compose build
    compose run --rm --no-deps keys
    compose up --detach "$@"
    ;;
  down) docker compose --profile '*' down --volumes --remove-orphans ;;
  *)
    sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
