# shellcheck shell=bash
# events: one writer. Steps report to the engine through a pipe; the engine alone writes the lines.

# emit EVENT [KEY=VALUE...]: called in a step, which is a process of its own, or for one that has not begun.
emit() { if [ "$BASHPID" = $$ ]; then write_event "$STEP" "$@"; else printf '%s %s\n' "$STEP" "$*" >&3; fi; }

# report: passes on what a program of ours prints for a step: events, `code CODE`, and lines for the log.
report() {
  local line
  while IFS= read -r line; do
    case $line in
      'progress '* | 'warn code='* | 'wait '* | 'note '*) emit "$line" ;;
      'code '*) printf '%s\n' "${line#code }" >"$STEP_CODE" ;;
      *) printf '%s\n' "$line" ;;
    esac
  done
}

# write_event STEP EVENT [KEY=VALUE...]: numbers stay bare, but for versions; everything else is a word of the vocabulary.
write_event() {
  local line pair value
  now
  SEQ=$((SEQ + 1))
  line="{\"v\":1,\"setup\":\"$SETUP_ID\",\"seq\":$SEQ,\"t\":$NOW,\"step\":\"$1\",\"event\":\"$2\""
  for pair in "${@:3}"; do
    value=${pair#*=}
    case ${pair%%=*}:$value in need:*.* | have:*.* | *:*[!0-9.]* | *: | *:.* | *.) value="\"$value\"" ;; esac
    line="$line,\"${pair%%=*}\":$value"
  done
  printf '%s}\n' "$line" >>"$SETUP_DIR/events.jsonl"
}

# write_status STATE EXIT: what `status` and a second setup read.
write_status() {
  local text
  now
  printf -v text '{"v":1,"setup":"%s","script":"%s","state":"%s","exit":%s,"t":%s}\n' \
    "$SETUP_ID" "$SCRIPT_ID" "$1" "$2" "$NOW"
  write_file "$SETUP_DIR/status.json" 600 "$text"
}
