# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# safe: notes with a run which of its results are safe at home, for the lease of this box and for later runs.

find_home
file=$box_home/runs/$run/safe
[ -d "${file%/safe}" ] || exit 0
umask 077
# Of what the run made, as its record has it: a later run need not preserve that.
printf '%s\n' "$made" >"${file%/safe}/results.home.new" && mv -f "${file%/safe}/results.home.new" "${file%/safe}/results.home"
printf '%s\n' "$note" >"$file.new" && mv -f "$file.new" "$file" && printf 'noted\tyes\n'
