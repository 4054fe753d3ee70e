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
else
  load_program
fi
# shellcheck disable=SC2086 # words of our own
main plan $words
