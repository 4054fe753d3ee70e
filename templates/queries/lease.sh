# shellcheck shell=sh disable=SC2154,SC3013 # the variables stand in front when it is sent; every sh there is knows -nt
# lease: extends the box's lease, or ends it, and prints its state.

find_home
file=$box_home/lease.json
if [ ! -f "$file" ]; then
  printf 'none\t\n'
  exit 0
fi
case $what in
  # A request that is repeated after a lost link counts once.
  extend)
    grep -qsxF "$id" "$box_home/lease.ids" || {
      printf '%s\n' "$id" >>"$box_home/lease.ids" && printf '%s\n' "$seconds" >>"$box_home/lease.extended"
    }
    ;;
  release)
    rm -f "$file" "$box_home/lease.state" "$box_home/lease.extended" "$box_home/lease.ids" \
      "$box_home/lease.digests"
    printf 'released\t\n'
    exit 0
    ;;
esac
# The monitor looks every ten seconds.
looks=30
while [ "$what" = extend ] && [ "$box_home/lease.extended" -nt "$box_home/lease.state" ] && [ "$looks" -gt 0 ]; do
  alive "$(cat "$box_home/lease.pid" 2>/dev/null)" || break
  looks=$((looks - 1))
  sleep 0.5
done
word=lost state=''
! alive "$(cat "$box_home/lease.pid" 2>/dev/null)" || word=kept
{ read -r state <"$box_home/lease.state"; } 2>/dev/null
printf 'lease\t%s\t%s\n' "$word" "$state"
