# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# take_data: prints what the setup waits for, one a line; while this lives, somebody is sending it. Then reads a word
# from standard input: `all` if all of it has arrived, else `some`.

find_home
folder=$box_home/setups/$setup_id
umask 077
identity $$ >"$folder/data.sender"
cat "$folder/data.waits"
printf '\nready\n'
IFS= read -r word || exit
printf '%s\n' "$word" >"$folder/data.new"
mv -f "$folder/data.new" "$folder/data.sent" && printf '\narrived\n'
