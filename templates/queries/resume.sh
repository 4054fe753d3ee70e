# shellcheck shell=bash disable=SC2034,SC2154 # set here, read elsewhere; the variables stand in front when it is sent
# resume: continues a run that ended early as a new one, once for this id, with the script of the last setup.

answer() { printf '%s\t%s\n' "$1" "${2-}" >&6; }

# find_started: sets begun to the run that was started under this id.
find_started() { begun=$(run_with_id "$runs" "$run_id") && [ "$(run_state "$begun")" != waiting ]; }

take() {
  local why code
  exec 9>>"$BOX_HOME/lock"
  flock -w "$wait_s" 9 || { answer refused busy && return; }
  # From here on the link may break: the id shows what was started.
  trap '' HUP PIPE
  ! find_started || return
  # Made under this id, but never started.
  [ -z "$begun" ] || rm -rf -- "$begun"
  run=$("$BOX_HOME/agent/bin/python" -I -S -B "$ONBOX" run_queue last "$run")
  why=$(why_not_resumed "$run")
  [ -z "$why" ] || { answer refused "$why" && return; }
  # Never left of `||` or in an `if`: that would switch `set -e` off inside.
  said=$( (set -e; STEP_CODE=/dev/null; resume_run "$run" "$run_id") 2>&1 >/dev/null 6>&- </dev/null)
  code=$?
  [ "$code" -ne 9 ] || { answer refused results && answer log "${said:0:500}" && return; }
  [ "$code" -eq 0 ] || { answer log "${said:0:500}" && rm -rf -- "$BOX_HOME/runs/$REPO_KEY"/.new.*; }
}

find_home
exec 6>&1
runs=$box_home/runs/$repo_key run=$box_home/runs/$repo_key/$name
if ! find_started; then
  script=$(sed '/^# ---- the program/,$d' "$box_home/steps/$repo_key/setup.sh" 2>/dev/null && printf '}') || script=
  eval "$script"
  load_program || { answer refused script && answer over && exit; }
  begin_script
  set +e
  OVERWRITE=$overwrite
  take
  revive_all 2>/dev/null
fi
if find_started; then
  answer run "${begun##*/}"
  answer started "$(<"$begun/started")"
  answer command "$(<"$begun/command")"
fi
answer over
