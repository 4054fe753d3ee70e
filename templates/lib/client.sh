# shellcheck shell=bash disable=SC2034 # set here, read elsewhere
# client: whether the machine that started a setup may still send what a step waits for.

begin_wait() { SENT_AT=$SECONDS CLIENT_AT=$SECONDS CLIENT_SIGN=; }

# may_arrive NAME SENDER: 1 once nobody will send it. While it follows the setup, that machine writes another word into
# `client` every few seconds; SENDER names the process that takes what it sends. After `begin_wait`.
may_arrive() {
  local sign=
  [ -n "${CLIENT_SENDS-}" ] && [ ! -e "$SETUP_DIR/$1.refused" ] || return
  { read -r sign <"$SETUP_DIR/client"; } 2>/dev/null || :
  [ "$sign" = "$CLIENT_SIGN" ] || CLIENT_SIGN=$sign CLIENT_AT=$SECONDS
  ! { read_text "$2" && alive "${TEXT%$'\n'}"; } || SENT_AT=$SECONDS
  [ "$SECONDS" -lt "$((SENT_AT + COMMIT_PATIENCE))" ] && [ "$SECONDS" -lt "$((CLIENT_AT + CLIENT_PATIENCE))" ]
}
