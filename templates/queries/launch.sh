# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# launch: takes the script from standard input, checks whether this box will do, and starts it detached
# from this connection. After the script comes its program, unless the box has it, and then the secrets.

# Puts the secrets into a file without a name: if this or the setup is killed, nothing stays behind.
receive() {
  exec 8<>"$2" && rm -f "$2" && ln -s /proc/self/fd/8 "$2"
  head -c "$1" >&8 && [ "$(wc -c <"$2")" -eq "$1" ]
}

# Prints options of env that drop secrets which start-up files set: the setup needs none, and any child could show them.
known_secrets() {
  [ -s "$box_home/secrets" ] || return 0
  tr '\0\n' '\n ' 2>/dev/null <"$box_home/secrets" | cut -d= -f1 | sed -n 's/^[A-Za-z_][A-Za-z0-9_]*$/-u &/p'
}

# Puts the program into its folder, if it came, and says whether it is there as a whole: what lost power may have holes.
# One that is touched is not swept before the setup is at work.
receive_program() {
  if [ "$program_bytes" -gt 0 ]; then
    mkdir -p "${program%/*}" && head -c "$program_bytes" | gzip -dc >"$program.new.$$" &&
      [ "$(sha256sum <"$program.new.$$")" = "$program_sum  -" ] &&
      bash --norc -c "$storing" store "$program" <"$program.new.$$"
    # Its own alone: another client may be sending it, too.
    rm -rf "$program.new.$$"
  fi
  is_whole && touch "$program"
}

# Its files end in .sh and .py; what Python compiled of them doesn't count.
is_whole() {
  [ "$(LC_ALL=C && cd "$program" 2>/dev/null && cat ./*.[ps][hy] ./*/*.[ps][hy] ./*/*/*.[ps][hy] | sha256sum)" = "$files_sum  -" ]
}

find_home
# The first check runs from memory: a box that won't do stays as it was.
script=$(head -c "$script_bytes" | gzip -dc 2>/dev/null && printf x) || { printf 'short\n' && exit 0; }
script=${script%x}
# shellcheck disable=SC2016 # bash reads it
lacks=$(printf %s "$script" | CLIENT_TIME=$client_time bash --norc -c 'eval "$(cat)"' setup preflight)
if [ -n "$lacks" ]; then
  printf '%s\n' "$lacks"
  exit 0
fi
folder=$box_home/setups/$setup_id
[ -d "${box_home%/*}" ] || mkdir -p "${box_home%/*}"
umask 077
mkdir -p "$box_home"
program=$box_home/box/$(printf %.16s "$program_sum")
if ! receive_program; then
  if [ "$program_bytes" -eq 0 ]; then printf 'program\n'; else printf 'lacks\tdisk-full\t%s filled up before the program was stored\n' "$box_home"; fi
  exit 0
fi
# preflight saw room for it: what fails now is a disk that filled up since.
if ! { mkdir -p "$folder" && printf %s "$script" >"$folder/setup.sh"; }; then
  rm -rf "$folder"
  printf 'lacks\tdisk-full\t%s filled up before the setup was stored\n' "$box_home"
  exit 0
fi
if [ "$secret_bytes" -gt 0 ]; then
  receive "$secret_bytes" "$folder/secrets" || { rm -f "$folder/secrets" && printf 'short\n' && exit 0; }
fi
: >"$folder/events.jsonl"
trap '' HUP
# shellcheck disable=SC2046,SC2086 # words of our own
CLIENT_SENDS=yes env $(known_secrets) CLOCK_AHEAD=$(($(date +%s) - client_time)) setsid bash "$folder/setup.sh" run "$setup_id" "$wait_seconds" $words </dev/null >"$folder/output" 2>&1 &
# This connection may end only once the setup runs on its own.
waited=0
until [ -f "$folder/pid" ]; do
  waited=$((waited + 1))
  if [ "$waited" -gt 1000 ]; then
    cat "$folder/output" >&2
    exit 0
  fi
  sleep 0.02
done
printf 'launched\n'
