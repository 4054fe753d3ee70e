# shellcheck shell=sh
# terminal_type: a terminal that the box's programs don't know. POSIX sh: `attach` uses it.

# know_terminal: without an entry for TERM, tmux refuses and editors complain: takes one that is near.
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
