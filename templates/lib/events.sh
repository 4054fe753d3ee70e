# shellcheck shell=bash disable=SC2034,SC2154 # set here, read elsewhere, and the reverse
# events: how a setup begins, tells and ends before this box has a Python that does so: see onbox/setup/events.py.

# open_setup ID: makes its folder, and notes there which process it is.
open_setup() {
  SETUP_ID=$1 SETUP_DIR=$BOX_HOME/setups/$1 SEQ=0
  mkdir -p "$SETUP_DIR/logs"
  find_identity $$
  write_file "$SETUP_DIR/pid" 600 "$_identity"$'\n'
  digest "$0"
  SCRIPT_ID=$DIGEST
  trap '' HUP
  trap 'trap "" TERM INT; finish 7 cancelled' TERM INT
  write_status running 0
}

# emit EVENT [KEY=VALUE...]: of the step STEP. Numbers stay bare.
emit() {
  local pair value
  now
  SEQ=$((SEQ + 1))
  {
    printf '{"v":1,"setup":"%s","seq":%s,"t":%s,"step":"%s","event":"%s"' "$SETUP_ID" "$SEQ" "$NOW" "$STEP" "$1"
    for pair in "${@:2}"; do
      value=${pair#*=}
      case $value in '' | *[!0-9]*) value="\"$value\"" ;; esac
      printf ',"%s":%s' "${pair%%=*}" "$value"
    done
    printf '}\n'
  } >>"$SETUP_DIR/events.jsonl"
}

# write_status STATE EXIT: what `status` and a second setup read.
write_status() {
  now
  write_file "$SETUP_DIR/status.json" 600 \
    "$(printf '{"v":1,"setup":"%s","script":"%s","state":"%s","exit":%s,"t":%s}' "$SETUP_ID" "$SCRIPT_ID" "$1" "$2" "$NOW")"$'\n'
}

# finish EXIT [CODE]: ends the setup; the process itself ends with 0. Secrets that no step took are removed.
finish() {
  rm -f "$SETUP_DIR/secrets"
  write_status over "$1"
  STEP=setup emit "done" "rc=$1" ${2+"code=$2"}
  exit 0
}
