# shellcheck shell=bash
# Sourced by each bash of a box under `make coverage` (BASH_ENV): a script of boxstrap's notes its name, where its
# functions begin, then each of its lines once. `set -x` would need BASH_XTRACEFD, which the scripts forget, and would
# write values of secrets.
case $0 in */.boxstrap/*.sh)
  # A script without indentation is packed: its lines are not those of the templates.
  if grep -q '^  [a-z]' "$0" && exec {__to}>>"${BASH_ENV%/*}/shell.$RANDOM.$$"; then
    printf '%s\n' "${0##*/}" >&"$__to"
    grep -n '^ *[a-z_]*() ' "$0" >&"$__to"
    # The script forgets BASH_ENV, and what it starts is to be traced too.
    unset() {
      [[ " $* " != *' BASH_ENV '* ]] || set -- "${@/#BASH_ENV/BASH_COMPAT}"
      builtin unset "$@"
    }
    declare -A __ran=()
    set -T
    # shellcheck disable=SC2016 # expanded for each command
    trap '[[ ${FUNCNAME-} == unset || ${__ran[$LINENO]-} ]] || { __ran[$LINENO]=1; echo "$LINENO" >&"$__to"; } 2>/dev/null' DEBUG
  fi
  ;;
esac
