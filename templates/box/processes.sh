# shellcheck shell=sh
# processes: the library, for programs that outlive the script: the runner, and the Python in box/.
# usage: sh processes.sh FUNCTION ARGUMENT...
# library: process run_state queue run_processes tracking memory_kills
"$@"
