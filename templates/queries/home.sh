# shellcheck shell=sh disable=SC2154,SC2034 # the variables stand in front when it is sent
# home: finds boxstrap's folder on this box.

find_home() {
  # shellcheck disable=SC2088 # the profile's own tilde
  case $workdir in
    '') box_home=$(readlink -f "$HOME/.boxstrap" 2>/dev/null || printf '%s' "$HOME/.boxstrap") ;;
    '~') box_home=$HOME/.boxstrap ;;
    '~/'*) box_home=$HOME/${workdir#??}/.boxstrap ;;
    *) box_home=$workdir/.boxstrap ;;
  esac
  # Nothing in it is used, not even to look; preflight says whose it is.
  ! is_anothers "$box_home" || box_home=/dev/null/.boxstrap
}
