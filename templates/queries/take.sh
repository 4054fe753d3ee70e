# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# take: takes `bytes` bytes from standard input into `file`, whole or not at all, for the setup that waits for `what`, which
# may say for what exactly. While this lives, somebody is sending it.

find_home
folder=$box_home/setups/$setup_id
part=$folder/$file.new.$$
# An address gives its object to anyone who has it.
umask 077
identity $$ >"$folder/$what.sender"
cat "$folder/$what.waits" 2>/dev/null
printf '\nready\n'
# The setup does not wait for what can't be stored; what was cut off is sent again.
head -c "$bytes" >"$part" || : >"$folder/$file"
if [ "$(wc -c <"$part")" -eq "$bytes" ]; then
  mv -f "$part" "$folder/$file" && printf '\narrived\n'
else
  rm -f "$part"
fi
