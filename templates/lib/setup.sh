# shellcheck shell=bash disable=SC2034,SC2088,SC2154 # set here, read elsewhere; a profile's ~ is literal
# setup: what every edition's setup begins and ends with.

begin_script() {
  set -eu
  TOKEN=${BOXSTRAP_TOKEN-}
  unset BASH_ENV CDPATH GREP_OPTIONS BOXSTRAP_TOKEN BOXSTRAP_RUN
  LC_ALL=C
  umask 022
  case $WORKDIR in '~'*) WORKDIR=$(expand_home "$WORKDIR") ;; esac
  BOX_HOME=$WORKDIR/.boxstrap SENT_KEY=$REPO_KEY PRIVATE=$WORKDIR/.boxstrap
  # The compact edition's programs can less: they have a folder of their own.
  PROGRAMS=$BOX_HOME/compact/box
  PROGRAMS=$BOX_HOME/box # full
  settle_names
  RUN_ID='' RUN_GPUS='' # full
  SETUP_EXIT=0 RESTART='' REVIVE='' ADOPT='' ONLY='' ALIVE_RUN='' WORK=''
}

# The names that the steps share, once the box's own folders are known.
settle_names() {
  find_repository "$BOX_HOME" "$SENT_KEY" "$REPO_ROOT" "$REPO_NAME"
  REPO_KEY=$repo_key MAIN_DIR=$repo_dir
  REPO_STORE=$BOX_HOME/store/$REPO_KEY.git
  RUNS=$BOX_HOME/runs/$REPO_KEY
  ENV_FILE=$BOX_HOME/env
  use_tree 1
}

# open_setup ID: its folder, and in it who it is.
open_setup() {
  SETUP_ID=$1 SETUP_DIR=$BOX_HOME/setups/$1 SEQ=0
  mkdir -p "$SETUP_DIR/logs"
  hide_secrets # full
  find_identity $$
  write_file "$SETUP_DIR/pid" 600 "$_identity"$'\n'
  digest "$0"
  SCRIPT_ID=$DIGEST
  trap '' HUP
  export BOXSTRAP_SETUP=$1
  write_status running 0
}

# The secrets of a door lie in a file yet. Without its name nothing of them stays behind where a kill ends this.
hide_secrets() {
  local secrets=$SETUP_DIR/secrets
  if [ -f "$secrets" ] && [ ! -L "$secrets" ]; then
    exec 8<"$secrets"
    ln -sfn /proc/self/fd/8 "$secrets"
  fi
}

# What the steps find on the box, once the lock is ours.
prepare_box() {
  # Whoever held the lock before may have brought this very repository.
  settle_names
  sweep
  link_home
  unpack_box
  note_repository
}

# What lies in box/ from standard input, each file after a form feed and a line with its name: bash takes lines
# together more slowly than it starts a program. What is right is not touched, and what is new moves in at once.
unpack_programs() {
  local name body file files=() new=$PROGRAMS
  local own=' ' new=$BOX_HOME/box.new.$BASHPID # full
  mapfile -t -d $'\f' files
  for file in "${files[@]:1}"; do
    name=${file%%$'\n'*} body=${file#*$'\n'}
    own+="$name " # full
    ! is_text "$PROGRAMS/$name" "$body" || continue
    [ -d "$new" ] || mkdir -p "$PROGRAMS" "$new"
    printf %s "$body" >"$new/$name"
  done
  if [ -d "$new" ]; then # full
    mv -f "$new"/* "$PROGRAMS" # full
    rmdir "$new" # full
  fi # full
  # Python of other versions: what lies there is imported. A live runner may still ask for their shell.
  for name in "$PROGRAMS"/*.py; do # full
    # Those of the steps `data` and `lease` come with profiles that have some: another repository's setup leaves them.
    case ${name##*/} in data_* | fetch_data.py | lease*) continue ;; esac # full
    case $own in *" ${name##*/} "*) ;; *) rm -f -- "$name" ;; esac # full
  done # full
}

# end_setup EXIT [CODE]: what it was, for `status` and a second setup. Secrets that no step took go.
end_setup() {
  ! { [ -e "$SETUP_DIR/secrets" ] || [ -L "$SETUP_DIR/secrets" ]; } || # full
    rm -f "$SETUP_DIR/secrets"
  write_status over "$1"
  write_event setup "done" "rc=$1" ${2+"code=$2"}
}

# What was being written when a setup was killed; nobody else writes here while the lock is ours.
sweep() {
  local beside=()
  beside=("$BOX_HOME"/steps/*/beside/*/*.new.*) # full
  rm -rf -- "$BOX_HOME"/trees "$BOX_HOME"/*.new.* "$PROGRAMS"/*.new.* "$BOX_HOME"/{bin,steps}/*.new.* "$BOX_HOME"/steps/*/*.new.* "$BOX_HOME"/runs/*/.new.* "${beside[@]}"
}

# `~/.boxstrap` points to the folder beside the work, which a provider keeps.
link_home() { home_linked || ln -sfn "$BOX_HOME" "$HOME/.boxstrap" 2>/dev/null || :; }

# The home of the person's own machine stays as it is, and so does a folder that is no link of ours.
home_linked() {
  [ -n "$IS_LOCAL" ] || # full
    [ "$BOX_HOME" -ef "$HOME/.boxstrap" ] || [ ! -w "$HOME" ] ||
    { [ -e "$HOME/.boxstrap" ] && [ ! -L "$HOME/.boxstrap" ]; }
}

# A setup that was killed leaves its copy; one that waits, or is being launched now, needs it yet.
forget_secrets() {
  local file
  for file in "$BOX_HOME"/setups/*/secrets; do [ -e "$file" ] || [ -L "$file" ] || return 0; done
  find "$BOX_HOME/setups" -mindepth 2 -maxdepth 2 -name secrets -mmin +2 | while IFS= read -r file; do
    alive "$(cat "${file%/*}/pid" 2>/dev/null)" || rm -f "$file"
  done
}

forget_old_setups() {
  # Names begin with the time, so the order of names is the order of time.
  local setups=("$BOX_HOME"/setups/*/)
  [ "${#setups[@]}" -le 20 ] || rm -rf -- "${setups[@]:0:${#setups[@]}-20}"
}
