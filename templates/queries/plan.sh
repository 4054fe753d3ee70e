# shellcheck shell=bash disable=SC2154 # the variables stand in front when it is sent
# plan: the plan of a script that comes on standard input, from memory: nothing is written. A box that lacks the program
# gets it after the script.

script=$(head -c "$script_bytes" | gzip -dc)
eval "${script%'# ---- the program'*}}"
recipe
begin_box
if [ "$program_bytes" -gt 0 ]; then
  mapfile -t -d $'\f' files < <(gzip -dc)
  # Those on the box may be an older version's, which can't answer all of this one's questions.
  onbox() {
    local file
    for file in "${files[@]}"; do case $file in onbox/from_memory.py*) break ;; esac; done
    find_python && "$PYTHON" -I -S -B -X utf8 -c "${file#*$'\n'}" <(printf '\f%s' "${files[@]:1}") "$@"
  }
fi
# shellcheck disable=SC2086 # words of our own
plan <(printf '%s\n' "$script") $words
