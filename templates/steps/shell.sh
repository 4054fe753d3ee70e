# shellcheck shell=bash disable=SC2153 # the capitals are rendered
# shell: the environment file, seen by every kind of shell; the provider's automatic tmux is off.

# The files that read the environment file: file | line | needed: always, if there is the file, or that shell.
RC_FILES=(
  '.bashrc|[ ! -r ~/.boxstrap/env ] || . ~/.boxstrap/env|always'
  '.profile|[ ! -r ~/.boxstrap/env ] || . ~/.boxstrap/env|always'
  '.bash_profile|[ ! -r ~/.boxstrap/env ] || . ~/.boxstrap/env|file'
  '.bash_login|[ ! -r ~/.boxstrap/env ] || . ~/.boxstrap/env|file'
  '.zshenv|[ ! -r ~/.boxstrap/env ] || . ~/.boxstrap/env|zsh'
  '.config/fish/conf.d/boxstrap.fish|test -r ~/.boxstrap/env.fish; and source ~/.boxstrap/env.fish|fish'
  '.cshrc|if ( -r ~/.boxstrap/env.csh ) source ~/.boxstrap/env.csh|csh'
  '.tcshrc|if ( -r ~/.boxstrap/env.csh ) source ~/.boxstrap/env.csh|file'
)

# What downloads models and packages: the variable that says where to | its folder with us | its usual one.
DOWNLOADS=(
  'HF_HOME|huggingface|.cache/huggingface'
  'TORCH_HOME|torch|.cache/torch'
  'PIP_CACHE_DIR|pip|.cache/pip'
  'UV_CACHE_DIR|uv|.cache/uv'
)

inputs_shell() { inputs v1 "${ENV_NAMES[@]-}" "${ENV_VALUES[@]-}" "$SECRETS_ID"; }

check_shell() {
  find_rc_missing
  [ -f "$ENV_FILE" ] && home_linked && [ "${#RC_MISSING[@]}" -eq 0 ] || return
  # Every profile has this step: no other one sees a lease that was set by an earlier setup alone. One of this setup is
  # being begun beside this check: its own step sees to it.
  case " ${STEPS[*]} " in *' lease '*) ;; *) lease_is_attended || return ;; esac
  [ -n "$IS_LOCAL" ] ||
    [ ! -w "$HOME" ] || [ -f "$HOME/.no_auto_tmux" ]
}

apply_shell() {
  write_env
  # On the user's own machine only the training sees it: rc files stay as they are.
  [ -z "$IS_LOCAL" ] || return 0
  if [ ! -w "$HOME" ]; then
    caution read-only-home "the home folder can't be written: only the training sees the environment"
    return
  fi
  [ -f "$HOME/.no_auto_tmux" ] || : >"$HOME/.no_auto_tmux"
  local row
  find_rc_missing
  for row in "${RC_MISSING[@]}"; do add_first_line "$HOME/${row%%|*}" "$row"; done
}

# Sets RC_MISSING to the rows of RC_FILES whose line is not in their file.
find_rc_missing() {
  local row file line where
  RC_MISSING=()
  [ -z "$IS_LOCAL" ] || return 0
  [ -w "$HOME" ] || return 0
  for row in "${RC_FILES[@]}"; do
    file=$HOME/${row%%|*} where=${row##*|} line=${row#*|}
    line=${line%|*}
    case $where in
      always) ;;
      file) [ -f "$file" ] || continue ;;
      *) have "$where" || continue ;;
    esac
    is_line "$file" "$line # boxstrap" || RC_MISSING+=("$row")
  done
}

# At the top, since many rc files return early if the shell is not interactive. The file is replaced as a whole
# or not at all; a link stays a link.
add_first_line() {
  local line=${2#*|} file=$1 mode=644
  [ -d "${1%/*}" ] || mkdir -p "${1%/*}"
  [ ! -L "$1" ] ||
    file=$(readlink -f -- "$1")
  [ ! -f "$file" ] || mode=$(stat -c %a "$file")
  {
    printf '%s # boxstrap\n' "${line%|*}"
    [ ! -f "$file" ] || cat "$file"
  } >"$file.boxstrap"
  [ "$mode" = 644 ] || chmod "$mode" "$file.boxstrap"
  [ ! -f "$file" ] || { [ -O "$file" ] && [ -G "$file" ]; } || chown --reference="$file" "$file.boxstrap" 2>/dev/null || :
  # A file that is a mount of its own can't be replaced.
  mv -f "$file.boxstrap" "$file" 2>/dev/null || { cat "$file.boxstrap" >"$file" && rm -f "$file.boxstrap"; }
}

# Writes the profile's values and the secrets, in each shell's own quoting.
write_env() {
  local i PAIRS=() secrets=$BOX_HOME/secrets sent=$SETUP_DIR/secrets
  [ -n "$SECRETS_ID" ] || [ ! -e "$secrets" ] ||
    rm -f "$secrets" "$secrets.ids" "$secrets.earlier"
  # Logs of runs that were started with others: they are redacted in them.
  [ ! -f "$sent" ] || [ ! -s "$secrets" ] || cmp -s "$sent" "$secrets" || (umask 077 && cat "$secrets" >>"$secrets.earlier")
  if [ "${#SECRET_IDS[@]}" -gt 0 ]; then complete_secrets; sent=; fi
  [ ! -f "$sent" ] || write_file "$secrets" 600 <"$sent"
  find_downloads
  # The profile's, then the secrets: NAME=VALUE each.
  for i in "${!ENV_NAMES[@]}"; do PAIRS+=("${ENV_NAMES[i]}=${ENV_VALUES[i]}"); done
  [ ! -f "$secrets" ] || mapfile -t -d '' -O "${#PAIRS[@]}" PAIRS <"$secrets"
  as_shell sh
  write_file "$ENV_FILE" 600 "${QUOTED:-$'\n'}"
  as_shell fish
  write_file "$ENV_FILE.fish" 600 "${QUOTED:-$'\n'}"
  as_shell csh
  write_file "$ENV_FILE.csh" 600 "${QUOTED:-$'\n'}"
}

# find_downloads: sets PAIRS to the folders of DOWNLOADS in the working folder, which outlives a tree and, on a volume,
# the box. Not where somebody chose another, or has downloaded already.
find_downloads() {
  local row name folder named
  if [ -n "$IS_LOCAL" ] || [ "$WORKDIR" = "$HOME" ] || is_set_elsewhere XDG_CACHE_HOME ''; then return; fi
  for row in "${DOWNLOADS[@]}"; do
    name=${row%%|*} row=${row#*|}
    folder=$WORKDIR/.boxstrap/cache/${row%|*}
    if is_set_elsewhere "$name" "$folder" || [ -n "$(ls -A "$HOME/${row#*|}" 2>/dev/null)" ]; then continue; fi
    PAIRS+=("$name=$folder")
    # A token of `hf auth login` stays on the box: a volume outlives it.
    [ "$name" != HF_HOME ] || is_set_elsewhere HF_TOKEN_PATH "$HOME/${row#*|}/token" ||
      PAIRS+=("HF_TOKEN_PATH=$HOME/${row#*|}/token")
  done
  for row in "${PAIRS[@]}"; do named+="${named:+, }${row%%=*}"; done
  [ -z "${named-}" ] || is_text "$BOX_HOME/downloads" "$named" || {
    write_file "$BOX_HOME/downloads" 600 "$named"
    emit note code=downloads-kept
  }
}

# is_set_elsewhere NAME OURS: whether the profile, the image or one of the user's files sets it to something else.
is_set_elsewhere() {
  local name
  [ "${!1-$2}" = "$2" ] || return 0
  for name in ${ENV_NAMES[@]+"${ENV_NAMES[@]}"}; do [ "$name" != "$1" ] || return 0; done
  grep -qsz "^$1=" /proc/1/environ && return
  set -- "$1" .bashrc .bash_profile .bash_login .profile .zshrc .zshenv .zprofile
  set -- "$@" /etc/environment /etc/rp_environment /etc/profile /etc/bash.bashrc /etc/profile.d/*.sh
  (cd "$HOME" && grep -qsE "(^|[^A-Z_])$1=" "${@:2}")
}

# Joins the secrets that came with this setup and those that the box already has. The ids show later setups which.
complete_secrets() {
  local i
  for i in "${SECRETS[@]}"; do
    secret_of "$i" >/dev/null || fail secret-gone "the secret $i was removed from this box in the meantime"
  done
  for i in "${SECRETS[@]}"; do secret_of "$i"; done | write_file "$BOX_HOME/secrets" 600
  for i in "${!SECRETS[@]}"; do printf '%s %s\n' "${SECRETS[i]}" "${SECRET_IDS[i]}"; done | write_file "$BOX_HOME/secrets.ids" 600
}

secret_of() {
  local pair file
  for file in "$SETUP_DIR/secrets" "$BOX_HOME/secrets"; do
    [ -f "$file" ] || continue
    while IFS= read -r -d '' pair; do
      [ "${pair%%=*}" != "$1" ] || { printf '%s\0' "$pair" && return; }
    done <"$file"
  done
  return 1
}

# wipe_secrets NAME...: removes the secrets that the box holds, and these, from the environment files, by the exact text
# that was written. A file that still sets one of them is deleted: the next setup writes it again.
wipe_secrets() {
  local pair shell file text PAIRS names=("$@")
  while IFS= read -r -d '' pair; do
    names+=("${pair%%=*}")
    printf 'wiped\t%s\n' "${pair%%=*}"
    for shell in sh fish csh; do
      file=$ENV_FILE
      [ "$shell" = sh ] || file=$ENV_FILE.$shell
      [ -f "$file" ] || continue
      text=$(<"$file")$'\n'
      PAIRS=("$pair")
      as_shell "$shell"
      write_file "$file" 600 "${text/"$QUOTED"/}"
    done
  done < <(cat "$BOX_HOME/secrets" 2>/dev/null)
  for pair in ${names[@]+"${names[@]}"}; do
    for file in "$ENV_FILE" "$ENV_FILE.fish" "$ENV_FILE.csh"; do
      grep -qE "^(export|set -gx|setenv) ${pair}[= ]" "$file" 2>/dev/null || continue
      rm -f "$file"
      printf 'wiped\t%s\n' "$pair"
    done
  done
  rm -f "$BOX_HOME/secrets.ids" "$BOX_HOME/secrets.earlier" "$BOX_HOME/steps/shell.ok" "$BOX_HOME"/setups/*/secrets
  # An empty file says that there were secrets: a live run may still have them.
  [ ! -f "$BOX_HOME/secrets" ] || write_file "$BOX_HOME/secrets" 600 ''
}

# as_shell SHELL: sets QUOTED to what sets PAIRS in that shell.
as_shell() {
  local pair name value line quote="'"
  QUOTED=
  for pair in "${PAIRS[@]}"; do
    name=${pair%%=*} value=${pair#*=}
    case $1 in
      sh)
        printf -v line "export %s='%s'\n" "$name" "${value//$quote/$quote\\$quote$quote}"
        ;;
      fish)
        value=${value//\\/\\\\}
        printf -v line "set -gx %s '%s'\n" "$name" "${value//$quote/\\$quote}"
        ;;
      csh)
        value=${value//$quote/$quote\\$quote$quote}
        value=${value//!/\\!}
        printf -v line "setenv %s '%s'\n" "$name" "${value//$'\n'/\\$'\n'}"
        ;;
    esac
    QUOTED+=$line
  done
}
