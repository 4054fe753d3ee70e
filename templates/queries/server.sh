# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# server: what onbox/server.py, whose text comes along, answers to `request`, a document of JSON.
# library: queries/program

find_home
! find_program server || exec "$python" -I -S -B -X utf8 -c "$text" "${program%/onbox/*}" "$box_home" "$request"
