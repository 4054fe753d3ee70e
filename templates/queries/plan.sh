# shellcheck shell=bash disable=SC1090,SC2154 # the variables stand in front when it is sent
# plan: the plan of a script that comes on standard input, from memory: nothing is written. A box that lacks the program
# gets it after the script.
# library: program

script=$(head -c "$script_bytes" | gzip -dc | sed '/^# ---- the program/,$d' && printf '}')
eval "$script"
if [ "$program_bytes" -gt 0 ]; then
  read_program < <(gzip -dc)
  load_program_files
  recipe
  # Those on the box may be an older version's, which can't answer all of this one's questions.
  onbox() {
    local file python=$BOX_HOME/agent/bin/python
    [ -x "$python" ] || python=python3
    for file in "${PROGRAM_FILES[@]}"; do case $file in onbox/from_memory.py*) break ;; esac; done
    "$python" -I -S -B -X utf8 -c "${file#*$'\n'}" <(printf '\f%s' "${PROGRAM_FILES[@]:1}") "$@"
  }
else
  load_program
fi
# shellcheck disable=SC2086 # words of our own
main plan $words
