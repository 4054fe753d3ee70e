# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# box_id: prints the variables `names` of this box, in which a provider gives it its own id.

for name in $names; do
  { env && cat /etc/environment /etc/rp_environment; tr '\0' '\n' </proc/1/environ; } 2>/dev/null |
    LC_ALL=C sed -nE "s/^(export )?($name)=(.{0,200}).*/said\\t\\2\\t\\3/p"
done
