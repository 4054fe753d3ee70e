# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# take_data: what the setup waits for, a line each; while this lives somebody sends it. Then a word from standard
# input: `all` where all of it has arrived, else `some`.

find_home
folder=$box_home/setups/$setup_id
umask 077
identity $$ >"$folder/data.sender"
cat "$folder/data.waits"
printf '\nready\n'
IFS= read -r word || exit
printf '%s\n' "$word" >"$folder/data.new"
mv -f "$folder/data.new" "$folder/data.sent" && printf '\narrived\n'
