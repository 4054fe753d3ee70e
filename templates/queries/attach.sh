# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# attach: shows a run's session in this terminal.

know_terminal
if ! tmux -L boxstrap has-session -t "=$session" 2>/dev/null; then
  # What sweeps /tmp removes the socket of a server that lives: it makes a new one when it is asked to.
  (umask 077 && mkdir -p "${TMUX_TMPDIR:-/tmp}/tmux-$(id -u)")
  for server in /proc/[0-9]*; do
    [ "$(cat "$server/comm")" = 'tmux: server' ] && tr '\0' ' ' <"$server/cmdline" | grep -q -e '-L boxstrap ' && kill -USR1 "${server#/proc/}"
  done 2>/dev/null
  sleep 0.5
fi
tmux -u -L boxstrap attach-session -t "=$session" && exit
printf 'boxstrap: the session %s can not be reached. Its log, as it grows: %s\n' "$session" "$instead" >&2
exit 7
