# shellcheck shell=bash disable=SC2153 # the variables are rendered
# dependencies: private git repositories that the environment is made from. Whoever started this may read them, and
# sends them into stores of ours; git, as the installer runs it, is led there instead of to its host. A row of
# DEPENDENCIES is `STORE COMMIT ADDRESS`; for COMMIT stands `-` where the repository names none, for STORE where it is
# left to the box.

await_dependencies() {
  local until=$((SECONDS + COMMIT_PATIENCE))
  [ "${#DEPENDENCIES[@]}" -gt 0 ] || return 0
  # Nobody sends where a hook runs this at boot: what came with the first setup is there.
  if [ -n "${CLIENT_SENDS-}" ] && ! has_dependencies; then
    emit wait code=dependencies
    until [ -f "$SETUP_DIR/dependencies" ]; do
      [ "$SECONDS" -lt "$until" ] ||
        fail dependency-missing 'a private dependency never arrived' 'run the same command again: it goes on here'
      read_text "$SETUP_DIR/dependencies.sender" && alive "${TEXT%$'\n'}" && until=$((SECONDS + COMMIT_PATIENCE))
      sleep 0.1
    done
  fi
  lead_git
}

# Which commit a name is may have changed: it is asked for anew.
has_dependencies() {
  local row store commit
  for row in "${DEPENDENCIES[@]}"; do
    read -r store commit _ <<<"$row"
    case $store:$commit in -:*) continue ;; *:-) return 1 ;; esac
    store=$BOX_HOME/dependencies/$store.git
    packs_right "$store/packs" "$store/objects/pack" &&
      box_git --git-dir="$store" rev-parse -q --verify "refs/boxstrap/$commit^{commit}" >/dev/null 2>&1 || return
  done
}

# For this step's own processes. The longest address counts; so one that is left to the box, and begins as another,
# leads to itself.
lead_git() {
  local row store address
  export GIT_CONFIG_COUNT=${GIT_CONFIG_COUNT-0}
  for row in "${DEPENDENCIES[@]}"; do
    read -r store _ address <<<"$row"
    case $store in
      -) store=$address ;;
      *)
        store=$BOX_HOME/dependencies/$store.git
        [ -d "$store" ] || continue
        store=file://$store
        ;;
    esac
    export "GIT_CONFIG_KEY_$GIT_CONFIG_COUNT=url.$store.insteadOf" "GIT_CONFIG_VALUE_$GIT_CONFIG_COUNT=$address"
    GIT_CONFIG_COUNT=$((GIT_CONFIG_COUNT + 1))
    # A git before 2.31 knows this alone, by which `git -c` tells its own children.
    export GIT_CONFIG_PARAMETERS="${GIT_CONFIG_PARAMETERS:+$GIT_CONFIG_PARAMETERS }'url.$store.insteadOf=$address'"
  done
}
