# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# attach: shows a run's session in this terminal.

# tmux_of PID: whether it is the server of boxstrap's sessions.
tmux_of() { [ "$(cat "/proc/$1/comm" 2>/dev/null)" = 'tmux: server' ] && tr '\0' ' ' <"/proc/$1/cmdline" | grep -q -e '-L boxstrap '; }

# What sweeps /tmp removes the socket of a server that lives: it makes a new one when it is asked to.
find_socket() {
  ! tmux -L boxstrap has-session -t "=$session" 2>/dev/null || return 0
  (umask 077 && mkdir -p "${TMUX_TMPDIR:-/tmp}/tmux-$(id -u)")
  for folder in /proc/[0-9]*; do
    ! tmux_of "${folder#/proc/}" || kill -USR1 "${folder#/proc/}" 2>/dev/null
  done
  sleep 0.5
}

know_terminal
find_socket
tmux -u -L boxstrap attach-session -t "=$session" && exit
printf 'boxstrap: the session %s can not be reached. Its log, as it grows: %s\n' "$session" "$instead" >&2
exit 7
