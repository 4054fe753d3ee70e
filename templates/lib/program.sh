# shellcheck shell=bash disable=SC2034 # set here, read elsewhere
# program: the program as it travels: each of its files after a form feed and a line with its name.

# Reads it from standard input into PROGRAM_FILES, where the first is empty.
read_program() { mapfile -t -d $'\f' PROGRAM_FILES; }

# load_program_files: loads it from there, as `load_program` does from its folder.
load_program_files() {
  local file
  for file in "${PROGRAM_FILES[@]:1}"; do
    case $file in defaults.sh* | lib/* | doors/*) eval "${file#*$'\n'}" ;; esac
  done
}

# is_stored FOLDER: whether each of its files is there as it is here.
is_stored() {
  local file text=''
  for file in "${PROGRAM_FILES[@]:1}"; do
    { IFS= read -r -d '' text <"$1/${file%%$'\n'*}"; } 2>/dev/null || :
    [ "$text" = "${file#*$'\n'}" ] || return
  done
}

# store_program FOLDER: writes it there, whole or not at all, unless it is there.
store_program() {
  local file new=$1.new.$BASHPID folders=()
  ! is_stored "$1" || return 0
  for file in "${PROGRAM_FILES[@]:1}"; do
    file=$new/${file%%$'\n'*}
    folders+=("${file%/*}")
  done
  mkdir -p "${folders[@]}" || return
  for file in "${PROGRAM_FILES[@]:1}"; do printf %s "${file#*$'\n'}" >"$new/${file%%$'\n'*}" || { rm -rf "$new" && return 1; }; done
  # Another client may have sent it at the same time, or one that lost power has holes.
  mv -T "$new" "$1" 2>/dev/null || is_stored "$1" || { rm -rf "$1" && mv -T "$new" "$1"; } || { rm -rf "$new" && return 1; }
  rm -rf "$new"
}
