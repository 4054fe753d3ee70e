# shellcheck shell=bash disable=SC2034,SC2153 # set here, read elsewhere; the variables are rendered
# projects: folders of the repository that are installed, and what their builds may read. A build runs code of the
# repository, so what it reads can't be known for certain: it is looked for generously, but in no text or module that
# changes with every edit. None of it is part of what a run's work is: a changed file there changes the content anyway.

# find_built: after find_sources: sets BUILT_FROM to these files and COPIED to folders of which a copy is installed.
find_built() {
  local folder file
  local -A counted=()
  BUILT_FROM=() COPIED=()
  for file in ${SOURCES[@]+"${SOURCES[@]}"}; do counted[$file]=yes; done
  case $SOURCE_KIND in
    project) add_project . ;;
    lock)
      while read -r file folder; do
        add_project "$folder"
        [ "$file" = editable ] || COPIED+=("$folder")
      done < <(cd "$REPO_DIR" && sed -nE 's/^source = \{ (editable|directory) = "([^"]+)".*/\1 \2/p' -- "${SOURCES[0]}" 2>/dev/null)
      ;;
  esac
  for folder in ${LINKED_FOLDERS[@]+"${LINKED_FOLDERS[@]}"}; do add_project "$folder"; done
  for folder in ${COPIED_FOLDERS[@]+"${COPIED_FOLDERS[@]}"}; do
    add_project "$folder"
    COPIED+=("$folder")
  done
  # uv reads its settings there, such as constraints and indexes.
  add_built uv.toml
  if read_text "$REPO_DIR/pyproject.toml" && [[ $TEXT == *'[tool.uv'* ]]; then
    add_built pyproject.toml
  fi
}

add_built() {
  [ -z "${counted[$1]-}" ] && [ -f "$REPO_DIR/$1" ] || return 0
  counted[$1]=yes
  BUILT_FROM+=("$1")
}

# add_project FOLDER: adds what describes the project there, and the files that this names.
add_project() {
  local at=${1%/}/ file
  at=${at#./}
  while [[ $at == ./* ]]; do at=${at#./}; done
  [ -z "${counted[$at/]-}" ] || return 0
  counted[$at/]=yes
  for file in pyproject.toml setup.py setup.cfg hatch_build.py pdm_build.py build.py; do
    if [ -f "$REPO_DIR/$at$file" ]; then
      add_built "$at$file"
      add_named "$at" "$file"
    fi
  done
  # Code may put names together.
  [ ! -f "$REPO_DIR/${at}setup.py" ] || for file in "$REPO_DIR/$at"{*.txt,*.in,*VERSION*,requirements/*,requires/*,reqs/*}; do
    [ ! -f "$file" ] || add_built "${file#"$REPO_DIR/"}"
  done
}

# add_named FOLDER/ FILE: adds files of the folder that its file names, whatever its syntax is, and modules that it
# imports; folders that it names, if they are projects too.
add_named() {
  local line word module set_f=$-
  set -f
  while IFS= read -r line || [ -n "$line" ]; do
    if [[ $2 == *.py && $line =~ ^[[:space:]]*(from|import)[[:space:]]+([A-Za-z_][A-Za-z0-9_.]*) ]]; then
      module=$1${BASH_REMATCH[2]//.//}
      add_built "$module.py"
      add_built "$module/__init__.py"
    fi
    line=${line//[][\"\'(),=:\{\}]/ }
    for word in $line; do
      case $word in
        /* | *../* | *.md | *.rst | *LICEN* | *COPYING*) ;;
        *.py) case ${word##*/} in *build* | *version* | *about* | *req* | *dep* | *meta* | *setup*) add_built "$1$word" ;; esac ;;
        *.* | *[A-Z]*) add_built "$1${word#./}" ;;
      esac
      case $word in
        /* | . | ./) ;;
        */* | ..*)
          if [ -f "$REPO_DIR/$1$word/pyproject.toml" ] || [ -f "$REPO_DIR/$1$word/setup.py" ]; then
            case $line in *editable*true*) ;; *) COPIED+=("$1$word") ;; esac
            add_project "$1$word"
          fi
          ;;
      esac
    done
  done <"$REPO_DIR/$1$2"
  case $set_f in *f*) ;; *) set +f ;; esac
}

# built_digest: prints a digest of all this; nothing if there is nothing of it.
built_digest() {
  local folder
  [ "$((${#BUILT_FROM[@]} + ${#COPIED[@]}))" -gt 0 ] || return 0
  digest <(
    cd "$REPO_DIR" 2>/dev/null && sha256sum -- ${BUILT_FROM[@]+"${BUILT_FROM[@]}"} </dev/null 2>/dev/null
    for folder in ${COPIED[@]+"${COPIED[@]}"}; do
      while [[ $folder == ./* ]]; do folder=${folder#./}; done
      tree_git rev-parse -q --verify "HEAD:${folder#.}" 2>/dev/null
    done
  )
  printf '%s\n' "$DIGEST"
}

# local_projects: prints the names of what was installed from folders, as uv reads them: it does not see that files
# have changed which a build reads.
local_projects() {
  local file
  for file in "$VENV_DIR"/lib/python*/site-packages/*.dist-info/direct_url.json; do
    if read_text "$file" && [[ $TEXT == *'"dir_info"'* ]]; then
      file=${file%/direct_url.json} file=${file##*/}
      printf '%s\n' "${file%%-*}"
    fi
  done
}
