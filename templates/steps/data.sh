# shellcheck shell=bash
# data: puts the profile's `data:` into its places: fetched by this box, or sent by the machine that started this.

inputs_data() { inputs v1 "$REPO_DIR" "$DATA"; }

# Looks only at what was noted when the data arrived: no data is read.
check_data() { fetch_data check; }

apply_data() {
  local asked
  case ",$REDO," in *,data,*) fetch_data again ;; esac
  asked=$(fetch_data asks) || {
    report <<<"$asked"
    exit 1
  }
  keep_data_untracked
  case $asked in *'local '*) ask_for_data "$asked" ;; esac
  fetch_data fetch | report
  [ "${PIPESTATUS[0]}" -eq 0 ] || exit 1
  case $asked in *'local '*)
    await_data
    fetch_data sent
    ;;
  esac
  keep_data_untracked
  fetch_data content | write_file "$NOTES/data.content" 600
}

# fetch_data check | asks | fetch | again | sent | untracked | content. The hub's HF_TOKEN is used only if it is a secret of the profile.
fetch_data() {
  (
    # shellcheck disable=SC1090 # written by the step `shell`
    [ ! -r "$ENV_FILE" ] || . "$ENV_FILE"
    case " ${SECRETS[*]-} " in *' HF_TOKEN '*) ;; *) unset HF_TOKEN ;; esac
    exec env CLIENT_SENDS="${CLIENT_SENDS-}" "$BOX_HOME/agent/bin/python" -I -B \
      "$ONBOX" data.fetch "$1" "$BOX_HOME" "$REPO_DIR" "${SETUP_DIR-}" < <(printf %s "$DATA") 3>&- 9>&-
  )
}

# ask_for_data WHAT: one line each, KIND NUMBER PLACE.
ask_for_data() {
  [ -n "${CLIENT_SENDS-}" ] || return 0
  printf '%s\n' "$1" >"$SETUP_DIR/data.waits"
  emit wait code=data
}

# The data comes over the login of the machine that started this; that link may break and come back.
await_data() {
  begin_wait
  until [ -e "$SETUP_DIR/data.sent" ]; do
    may_arrive data "$SETUP_DIR/data.sender" ||
      fail data-missing 'the data to be sent from your machine never arrived' 'run the same command again: it continues here'
    sleep 0.1
  done
  [ "$(<"$SETUP_DIR/data.sent")" = all ] || fail data-missing 'not all data could be sent' 'boxstrap on your machine says why'
}

# Data that has arrived, or is on its way, is no work of this tree: `sync --back` skips it, and it blocks no commit.
keep_data_untracked() {
  local line exclude=$REPO_DIR/.git/info/exclude
  mkdir -p "${exclude%/*}"
  { printf '%s\n' '.boxstrap-*' && fetch_data untracked; } | while IFS= read -r line; do
    is_line "$exclude" "$line" || printf '%s\n' "$line" >>"$exclude"
  done
}
