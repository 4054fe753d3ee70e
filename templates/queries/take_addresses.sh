# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# take_addresses: a line for each object of the profile's buckets from standard input, for the setup that waits for
# them. The last line says that all came; a list without other lines says that none will.

find_home
folder=$box_home/setups/$setup_id
part=$folder/data.addresses.new.$$
# An address gives its object to anyone who has it.
umask 077
identity $$ >"$folder/data.sender"
cat >"$part"
if [ "$(tail -n 1 "$part")" = end ]; then
  mv -f "$part" "$folder/data.addresses" && printf '\narrived\n'
else
  rm -f "$part"
fi
