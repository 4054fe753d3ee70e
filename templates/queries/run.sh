# shellcheck shell=bash disable=SC2034,SC2153,SC2154 # set here, read elsewhere; the variables stand in front when it is sent
# run: a new run of a state of the repository, once for its id. The script of this box's last setup starts it if that
# is exactly the profile's and its steps are right for that state; else `setup` is reported, with what is not right,
# and nothing is started. STATE and OBJECTS are as for `sync`; `none` only asks what became of the run.
# library: repository packs store sent_state queries/program

# find_script: sets script to that one, without what differs from run to run, and without its last part, which begins it.
find_script() {
  local own
  for own in "$box_home/steps/$repo_key"/{setup,run}.sh; do
    script=$(sed -E "/^ *($OF_ONE_RUN)=/d" "$own" 2>/dev/null) || continue
    [ "$(printf '%s\n' "$script" | sha256sum)" = "$SCRIPT  -" ] || continue
    # Through a pipe: for a long text `<<<` makes a file, which fails on a full disk.
    script=$(printf '%s\n' "$script" | sed '/^# ---- the program/,$d' && printf '}')
    return
  done
  return 1
}

take_run() {
  local rc
  receive || return
  (
    hold_box || exit
    # From here on the link may break: what was started stays started, and the id shows which run it was.
    trap '' HUP
    trap : PIPE
    ! is_started || exit
    choose_tree
    is_tree || { answer setup repo && exit; }
    start_starter
    begin_sources
    place_state
    rc=$?
    [ "$rc" -eq 0 ] && are_steps_right || exit
    begin_new
  )
}

# The steps that a training needs; the box itself was checked when it was set up, and may have been found bad since.
are_steps_right() {
  local name
  for name in gpu smoke; do
    case " ${STEPS[*]} " in *" $name "*) ;; *) continue ;; esac
    if is_spoiled "$name" || { [ "$name" = gpu ] && is_returned; }; then answer setup "$name" && return 1; fi
  done
  find_environment
  for name in shell python data prepare; do
    case " ${STEPS[*]} " in *" $name "*) ;; *) continue ;; esac
    find_reason "$name" 2>>"$STEP_LOG"
    [ -z "$WHY" ] || { answer setup "$name" && return 1; }
  done
}

# Never left of `&&` or in an `if`, as `place_state`.
begin_new() {
  local rc
  have tmux || answer warn no-tmux
  : >"$STEP_CODE"
  (
    set -e
    # For good, not for one command: bash would keep a copy, and login and lock would last as long as the run.
    exec 6>&- 9>&-
    start_run
    made_of >"$RUN_DIR/made_of"
    write_stamp train
  ) >"$STEP_LOG" 2>&1 </dev/null
  rc=$?
  [ "$rc" -eq 0 ] || { answer_failure; rm -rf -- "$BOX_HOME/runs/$REPO_KEY"/.new.*; }
}

# has_started RUNS: sets run to the run of this id; 1 if it was not started yet.
has_started() { run=$(run_with_id "$1" "$RUN_ID") && [ "$(run_state "$run")" != waiting ]; }

find_home
find_repository "$box_home" "$REPO_KEY" "$REPO_ROOT" ''
exec 6>&1
# The script has a STATE of its own.
header=$STATE
if ! has_started "$box_home/runs/$repo_key" && [ "$header" != none ]; then
  find_script || { answer setup script && answer over && exit; }
  eval "$script"
  load_program || { answer setup script && answer over && exit; }
  begin_script
  set +e
  # shellcheck disable=SC2086 # words of our own
  read_words $RUN_WORDS
  await_states
  if [ -n "$header" ]; then
    read_header "$header"
    take_run < <(base64 -d <<<"$OBJECTS")
  else
    read -r line
    read_header "$line"
    take_run
  fi
fi
if ! has_started "$box_home/runs/$repo_key"; then
  answer over
  exit
fi
answer run "$repo_key/${run##*/}"
answer dir "$(<"$run/dir")"
answer venv "$(<"$run/venv")"
answer started "$(<"$run/started")"
answer over

# Prints its first output as soon as there is some, then a line that only the caller can know: the output may hold any
# byte. Then what became of it a moment later.
[ -n "$show_s" ] && find_program runs.first_output || exit
exec "$python" -I -S -B "$program" "$module" "$run" "$show_s" "$mark"
