#!/usr/bin/env bash
# begin: becomes a run's command, in the environment of the profile, of its nodes and of conda's packages.
# usage: BOXSTRAP_RUN=RUN_DIR bash begin.sh ENV_FILE VENV COMMAND
# The profile may set any variable, ours too: all of ours are arguments, and the command has a shell of its own.
set -- "$BOXSTRAP_RUN" "$@"
# shellcheck disable=SC1090 # written by the step `shell`
[ ! -r "$2" ] || . "$2"
[ ! -f "$1/variables" ] || while IFS= read -r variable; do export "${variable?}"; done <"$1/variables"
[ ! -f "$1/gpus" ] || { CUDA_VISIBLE_DEVICES=$(cat "$1/gpus") && export CUDA_VISIBLE_DEVICES; }
# The folder of the run that it waited for.
if read -r _ before <"$1/queue" && [ -n "$before" ]; then
  case $before in */*) before=${1%/*/*}/$before ;; *) before=${1%/*}/$before ;; esac
  BOXSTRAP_AFTER=$(cat "$before/dir") && export BOXSTRAP_AFTER
fi 2>/dev/null
# shellcheck disable=SC1091 # written by onbox/nodes/check.py
[ ! -f "$1/nodes/env" ] || . "$1/nodes/env"
[ ! -d "$3" ] || export VIRTUAL_ENV="$3" PATH="$3/bin:$PATH"
# shellcheck disable=SC1091 # of an environment of conda's packages
[ ! -r "$3/etc/conda/activate.sh" ] || . "$3/etc/conda/activate.sh"
export BOXSTRAP_RUN="$1"
exec bash -o pipefail -c ". \"\$1\"; shift; $4" bash "${0%/*}/command.sh"
