# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# refuse: what a setup waits for can't be sent.

find_home
: >"$box_home/setups/$setup_id/$what.refused"
