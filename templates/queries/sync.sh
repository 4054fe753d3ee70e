# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# sync: what is sent of a repository (a setup's commit, a state, a new run) goes to `module`, a program of boxstrap's on
# this box, with `request`, a document of JSON. `waits`: until git, the program and a Python for it are here.
# library: queries/program

can_begin() {
  # An older boxstrap's program may be here.
  command -v git >/dev/null && find_program "$module" && [ -f "${program%/*}/${module%.*}/${module#*.}.py" ] || return
  [ "$python" != python3 ] || python3 -I -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null
}

find_home
waited=0
until can_begin; do
  [ "$waited" -lt "$waits" ] || { printf '%sover\t\n' "$lacking" && exit; }
  waited=$((waited + 1))
  sleep 0.1
done
# No list of processes shows it: who looks there for a run's command finds only the run.
export BOXSTRAP_REQUEST="$request"
exec "$python" -I -S -B -X utf8 "$program" "$module" "$box_home"
