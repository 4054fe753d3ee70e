#!/usr/bin/env bash
# enter: a shell, or one command, in a repository's folder and environment.
# usage: bash enter.sh FOLDER [COMMAND ARGUMENT...]
# FOLDER may be a name next to boxstrap's folder. When this is sent, `box_home` and `venv` are set in front of it.

# know_terminal: without an entry for TERM, tmux refuses and editors complain: takes one that is near. In POSIX sh: `attach`
# takes it from here.
know_terminal() {
  command -v infocmp >/dev/null 2>&1 && ! infocmp "${TERM:-dumb}" >/dev/null 2>&1 || return 0
  for _term in xterm-256color xterm screen vt100; do
    infocmp "$_term" >/dev/null 2>&1 || continue
    printf 'boxstrap: the terminal type %s is unknown on this box: %s is used\n' "${TERM-}" "$_term" >&2
    TERM=$_term
    export TERM
    return
  done
}

{
  [ ! -t 1 ] || know_terminal
  box_home=${box_home:-$(cd "${0%/*}/../.." && pwd -P)}
  case $1 in /*) folder=$1 ;; *) folder=${box_home%/*}/$1 ;; esac
  shift
  cd -- "$folder" || exit
  venv=${venv:-$folder/.venv} env=$box_home/env
  # The environment that was built for this folder, wherever it is, and its repository's variables.
  for note in "$box_home"/steps/*/{,beside/*/}repo.dir; do
    [ "$(cat "$note" 2>/dev/null)" = "$folder" ] || continue
    made=${note%/*}/python.venv own=${note%/repo.dir}
    own=${own%/beside/*}/env
    # A tree beside uses the main tree's environment unless it has its own.
    [ -r "$made" ] || made=${note%/beside/*}/python.venv
    [ ! -r "$made" ] || venv=$(cat "$made")
    [ ! -r "$own" ] || env=$own
  done
  # A login has those of the repository that was set up last.
  names=$([ "$env" -ef "$box_home/env" ] || sed -nE '/^export PATH=/d;s/^export ([A-Za-z_][A-Za-z0-9_]*)=.*/\1/p' "$box_home/env" 2>/dev/null | tr '\n' ' ')
  # shellcheck disable=SC1090,SC2086 # written by the step `shell`; names
  [ ! -r "$env" ] || { unset $names && . "$env"; }
  [ ! -d "$venv" ] || export VIRTUAL_ENV="$venv" PATH="$venv/bin:$PATH"
  # shellcheck disable=SC1091 # of an environment of conda's packages
  [ ! -r "$venv/etc/conda/activate.sh" ] || . "$venv/etc/conda/activate.sh"
  # While it is open, the box is in use: see lease/activity.py.
  export BOXSTRAP_ENTERED=1
  # As sshd's own shell a bash would read ~/.bashrc and print. Of a command that a signal ended ssh would make 255, not 130.
  [ "$#" -eq 0 ] || { { trap : INT && (SHLVL=$((${SHLVL:-1} + 1)) && exec -- "$@" 2>&3 3>&-); } 3>&2 2>/dev/null; exit; }

  # The shell reads its own rc files, and those of images activate other environments, so ours is activated afterwards.
  shell=${SHELL:-/bin/bash}
  printf -v place ' %q' "$env" "$venv" "$folder"
  # shellcheck disable=SC2016,SC2086 # for that shell; three words
  case ${shell##*/} in
    bash) exec bash --rcfile <(printf '%s\n' '[ ! -r ~/.bashrc ] || . ~/.bashrc' "unset $names" "set --$place" \
      '[ ! -r "$1" ] || . "$1"; [ ! -d "$2" ] || export VIRTUAL_ENV="$2" PATH="$2/bin:$PATH"
        [ ! -r "$2/etc/conda/activate.sh" ] || . "$2/etc/conda/activate.sh"; cd -- "$3"; set --') -i ;;
    fish) ENTER_VENV=$venv exec fish -i -C 'if test -d "$ENTER_VENV"
      set -gx VIRTUAL_ENV "$ENTER_VENV"
      set -gx PATH "$ENTER_VENV/bin" $PATH
    end
    set -e ENTER_VENV' ;;
    *) exec "$shell" -i ;;
  esac
}
