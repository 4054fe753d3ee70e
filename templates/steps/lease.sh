# shellcheck shell=bash
# lease: how long the box may run, what it may cost, how long it may be idle: its monitor enforces that.

inputs_lease() { inputs v1 "$LEASE"; }

check_lease() { is_text "$BOX_HOME/lease.json" "$LEASE" && lease_is_attended; }

apply_lease() {
  HELD=trying
  [ -f "$BOX_HOME/lease.json" ] || rm -f "$BOX_HOME"/lease.{state,extended,ids,digests}
  write_file "$BOX_HOME/lease.json" 600 "$LEASE"
  begin_at_boot /root/onstart.sh
  attend_lease
  # Waits for the monitor's first look, with one read of the account.
  for _ in {1..300}; do
    find_held
    case $HELD in '' | trying) sleep 0.1 ;; *) break ;; esac
  done
  case $HELD in
    yes) emit note code=lease-held ;;
    no-boot) caution lease-until-restart 'nothing starts the monitor again after a restart of this box' ;;
    no-key) caution lease-no-key 'this box has no key of its own for the account that pays for it' ;;
    wipes) caution lease-wipes 'a stop would wipe what lies outside a volume' ;;
    refused) caution lease-refused 'the account refuses the key that this box has' ;;
    no-answer) caution lease-no-answer 'the account does not answer this box' ;;
    *) caution lease-later 'an earlier monitor is still running' ;;
  esac
}

# begin_at_boot FILE: adds a line to what Vast.ai runs at each start of a box, at the top: it may end in an `exec`.
begin_at_boot() {
  local line new="$BOX_HOME/onstart.new.$BASHPID"
  printf -v line '{ [ ! -f %q ] || exec setsid bash %q %q; } </dev/null >/dev/null 2>&1 & # boxstrap' \
    "$BOX_HOME/lease.json" "$BOX_HOME/box/current/lease.sh" "$BOX_HOME"
  [ -f "$1" ] && [ -w "$1" ] && ! is_line "$1" "$line" || return 0
  { sed -n '1{/^#!/p}' "$1" && printf '%s\n' "$line" && sed '1{/^#!/d}' "$1"; } >"$new" && cat "$new" >"$1"
  rm -f "$new"
}

# Sets HELD to what the monitor says about itself under these same terms.
find_held() {
  HELD=
  [ "$BOX_HOME/lease.state" -nt "$BOX_HOME/lease.json" ] || return 0
  read_text "$BOX_HOME/lease.state" || :
  HELD=${TEXT#*'"held":"'}
  HELD=${HELD%%\"*}
}
