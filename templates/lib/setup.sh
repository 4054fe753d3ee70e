# shellcheck shell=bash disable=SC2034,SC2088,SC2153,SC2154 # set here, read elsewhere, and the reverse; a profile's ~ is literal
# setup: how a setup starts and ends.

begin_script() {
  begin_box
  unset BOXSTRAP_RUN
  SENT_KEY=$REPO_KEY
  ONBOX=$PROGRAMS/onbox/__main__.py
  # A plan from memory asks the one that set this box up.
  [ -f "$ONBOX" ] || ONBOX=$BOX_HOME/box/current/onbox/__main__.py
  settle_names
  RUN_ID='' RUN_GPUS='' RUN_VARIABLES='' NODES_ID='' REDO='' OVERWRITE='' BESIDE=''
  SETUP_EXIT=0 TOKEN='' RESTART='' REVIVE='' ADOPT='' ONLY='' ALIVE_RUN='' BEGUN=''
}

# Sets the names that the steps share, once the box's own folders are known.
settle_names() {
  find_repository "$BOX_HOME" "$SENT_KEY" "$REPO_ROOT" "$REPO_NAME"
  REPO_KEY=$repo_key MAIN_DIR=$repo_dir
  RUNS=$BOX_HOME/runs/$REPO_KEY
  ENV_FILE=$BOX_HOME/env
  use_tree 1
}

# open_setup ID: makes its folder, and notes there which process it is.
open_setup() {
  SETUP_ID=$1 SETUP_DIR=$BOX_HOME/setups/$1 SEQ=0
  mkdir -p "$SETUP_DIR/logs"
  hide_secrets
  find_identity $$
  write_file "$SETUP_DIR/pid" 600 "$_identity"$'\n'
  digest "$0"
  SCRIPT_ID=$DIGEST
  trap '' HUP
  export BOXSTRAP_SETUP=$1
  write_status running 0
}

# The secrets of a door are still in a file. Once its name is gone, nothing stays behind if this is killed.
hide_secrets() {
  local secrets=$SETUP_DIR/secrets
  if [ -f "$secrets" ] && [ ! -L "$secrets" ]; then
    exec 8<"$secrets"
    rm -f "$secrets" && ln -s /proc/self/fd/8 "$secrets"
  fi
}

# Prepares what the steps need on the box, once the lock is ours.
prepare_box() {
  # The previous holder of the lock may have brought this same repository.
  settle_names
  sweep
  link_home
  guard_settings
  if ! [ "$BOX_HOME/box/current" -ef "$PROGRAMS" ]; then
    # Who has just found it is about to start it.
    touch -c "$BOX_HOME/box/current/."
    ln -sfn "${PROGRAMS##*/}" "$BOX_HOME/box/current"
  fi
  sweep_programs
  tell_agents
  attend_lease
  note_repository
}

# The lease that stands on the box is attended by each setup, whether its profile has one or not: a restart ends its
# monitor. lease.sh holds a lock as long as it lives, but testing the lock would take it: its process is checked instead.
lease_is_attended() { [ ! -f "$BOX_HOME/lease.json" ] || { read_text "$BOX_HOME/lease.pid" && alive "${TEXT%$'\n'}"; }; }

attend_lease() {
  lease_is_attended || { setsid bash "$PROGRAMS/lease.sh" "$BOX_HOME" </dev/null >/dev/null 2>&1 3>&- 9>&- & }
}

# For whoever lands here without boxstrap, such as a coding agent: what is what, and what not to touch.
tell_agents() {
  local text
  # shellcheck disable=SC2016 # marks of code
  text=$(
    printf '%s\n' \
      '# A box of boxstrap' '' \
      'Another machine set this box up and follows what runs here. It is rented by the hour, and may be given back.' '' \
      '- `runs/REPOSITORY/NAME/`: a run: `command`, `log`, `exit` (its exit code, once it is over). Reading is fine.' \
      '- The work is in the folder beside this one, its environment in `.venv` there. `. ~/.boxstrap/env` sets its variables.' \
      '- The training runs in `tmux -L boxstrap`: `tmux -L boxstrap ls`. End a run from the other machine: `boxstrap stop`.' '' \
      'Do not change or delete anything in this folder: runs, the queue, the lease and the next setup rely on it.' \
      '`env` and `secrets` hold secrets: do not print, copy or send them.' \
      'Do not edit tracked files here: the next setup stops because of them. Edit at the other machine and send: `boxstrap sync`.' \
      'Only what the profile names as `train.results` is brought home: write results there.' \
      'Do not end or extend the lease, and start nothing that outlives your task: it costs money.'
  )
  is_text "$BOX_HOME/AGENTS.md" "$text" || printf %s "$text" >"$BOX_HOME/AGENTS.md"
}

# Where others may put files above the working folder, or into it and not replace what is there: uv reads the nearest ones.
guard_settings() {
  local own folder name mode
  own=$(cd "$WORKDIR" && pwd -P) folder=$own
  [ "$MAIN_DIR" != "$WORKDIR" ] || return 0
  while :; do
    # shellcheck disable=SC2012 # only its first word counts
    read -r mode _ < <(ls -ldn "$folder/.")
    case $folder:$mode in
      "$own":?????????[!tT]*) ;;
      *:?????w* | *:????????w*) break ;;
    esac
    [ -n "$folder" ] || return 0
    folder=${folder%/*}
  done
  for name in pyproject.toml uv.toml .python-version; do
    (set -C && printf '# of boxstrap: others can write to %s, and uv looks there if this is not here\n' "${folder:-/}" >"$own/$name") 2>/dev/null || :
  done
}

# Removes programs that nobody names: no process that is alive, no setup that begins or is at work, no recipe that a
# probe may run. One that was just sent may not be named yet. (tmux shows the command of its first session for ever.)
sweep_programs() {
  local dir id recipes=("$BOX_HOME"/steps/*/{setup,run}.sh) folder
  for folder in "$BOX_HOME"/setups/*/; do
    if [ ! -f "$folder/pid" ] || alive "$(<"$folder/pid")"; then recipes+=("$folder/setup.sh"); fi
  done
  while IFS= read -r dir; do
    id=${dir##*/}
    if [ "$dir" = "$PROGRAMS" ] || grep -qs "^ *PROGRAM='$id" "${recipes[@]}" || grep -aqs "^[^t].*/bo[x]/$id/" /proc/[0-9]*/cmdline; then continue; fi
    rm -rf -- "$dir"
  done < <(find "$BOX_HOME/box" -mindepth 1 -maxdepth 1 ! -type l -mmin +2)
}

# end_setup EXIT [CODE]: writes the result, for `status` and a second setup. Secrets that no step took are removed.
end_setup() {
  ! { [ -e "$SETUP_DIR/secrets" ] || [ -L "$SETUP_DIR/secrets" ]; } || rm -f "$SETUP_DIR/secrets"
  write_status over "$1"
  write_event setup "done" "rc=$1" ${2+"code=$2"}
}

# Removes files that a killed setup was writing; nobody else writes here while the lock is ours.
sweep() {
  local beside=("$BOX_HOME"/steps/*/beside/*/*.new.*)
  rm -rf -- "$BOX_HOME"/trees "$BOX_HOME"/*.new.* "$BOX_HOME"/{bin,steps}/*.new.* "$BOX_HOME"/steps/*/*.new.* "$BOX_HOME"/runs/*/.new.* "${beside[@]}"
}

# `~/.boxstrap` points to the folder next to the work, which a provider keeps.
link_home() { home_linked || ln -sfn "$BOX_HOME" "$HOME/.boxstrap" 2>/dev/null || :; }

# The home of the user's own machine stays as it is, and so does a folder that is no link of ours.
home_linked() {
  [ -n "$IS_LOCAL" ] ||
    [ "$BOX_HOME" -ef "$HOME/.boxstrap" ] || [ ! -w "$HOME" ] ||
    { [ -e "$HOME/.boxstrap" ] && [ ! -L "$HOME/.boxstrap" ]; }
}

# Removes what killed setups left; a setup that waits, or is just being launched, still needs its file.
forget_secrets() {
  local file
  for file in "$BOX_HOME"/setups/*/secrets; do [ -e "$file" ] || [ -L "$file" ] || return 0; done
  find "$BOX_HOME/setups" -mindepth 2 -maxdepth 2 -name secrets -mmin +2 | while IFS= read -r file; do
    alive "$(cat "${file%/*}/pid" 2>/dev/null)" || rm -f "$file"
  done
}

forget_old_setups() {
  # Names start with the time, so the order of names is the order of time.
  local setups=("$BOX_HOME"/setups/*/)
  [ "${#setups[@]}" -le 20 ] || rm -rf -- "${setups[@]:0:${#setups[@]}-20}"
}
