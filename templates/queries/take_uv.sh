# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# take_uv: takes uv's wheel from standard input, for the setup that waits for it. An empty one says that there is none.

find_home
folder=$box_home/setups/$setup_id
part=$folder/uv.new.$$
umask 077
identity $$ >"$folder/uv.sender"
# The setup does not wait for what can't be stored; what was cut off is sent again.
head -c "$wheel_bytes" >"$part" || : >"$folder/uv.whl"
if [ "$(wc -c <"$part")" -eq "$wheel_bytes" ]; then
  mv -f "$part" "$folder/uv.whl" && printf '\narrived\n'
else
  rm -f "$part"
fi
