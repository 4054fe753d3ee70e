# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# first: waits for a run's first output, or its end, and shows it.
# library: first_output

find_home
run=$box_home/runs/$repo_key/$name
await_output "$run" "$seconds"
show_output "$run" "$moment"
