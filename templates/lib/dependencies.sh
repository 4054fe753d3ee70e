# shellcheck shell=bash disable=SC2153 # the variables are rendered
# dependencies: private git repositories that the environment is made from. The machine that started this may read them,
# and sends them into stores on the box; git, when the installer runs it, is redirected there instead of to their host.
# A row of DEPENDENCIES is `STORE COMMIT ADDRESS`; COMMIT is `-` if the repository names none, STORE is `-` if the box
# fetches the dependency itself.

await_dependencies() {
  [ "${#DEPENDENCIES[@]}" -gt 0 ] || return 0
  # When a hook runs this at boot, nobody sends anything: what came with the first setup is there.
  if [ -n "${CLIENT_SENDS-}" ] && ! has_dependencies; then
    emit wait code=dependencies
    begin_wait
    until [ -f "$SETUP_DIR/dependencies" ]; do
      may_arrive dependencies "$SETUP_DIR/dependencies.sender" ||
        fail dependency-missing 'a private dependency never arrived' 'run the same command again: it continues here'
      sleep 0.1
    done
  fi
  lead_git
}

# The commit behind a name may have changed, so a dependency without a commit is asked for again.
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

# For this step's own processes only. git takes the longest address that matches, so an address that is left to the
# box, and starts like another one, is mapped to itself.
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
    # git before 2.31 only knows this variable, which `git -c` uses for its own children.
    export GIT_CONFIG_PARAMETERS="${GIT_CONFIG_PARAMETERS:+$GIT_CONFIG_PARAMETERS }'url.$store.insteadOf=$address'"
  done
}
