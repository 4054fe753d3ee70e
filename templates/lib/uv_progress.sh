# shellcheck shell=bash disable=SC2034,SC2154 # set here, read elsewhere
# uv_progress: turns what uv prints while it installs into progress and warnings.

# Runs uv, and turns its output into progress: packages resolved, and bytes as the network counts them.
run_uv_with_progress() {
  local line sizes=0 total=0 sampler rc
  : >"$SETUP_DIR/sizes"
  rm -f "$SETUP_DIR/builds"
  report_bytes &
  sampler=$!
  run_uv "$@" 2>&1 | while IFS= read -r line; do
    printf '%s\n' "$line"
    case $line in
      *'Resolved '*)
        total=${line#*Resolved } total=${total%% *}
        emit progress done=0 "total=$total" unit=packages
        ;;
      *'Downloading '*'('*)
        in_bytes "${line##*\(}"
        sizes=$((sizes + BYTES))
        printf '%s\n' "$sizes" >"$SETUP_DIR/sizes"
        ;;
      *'Building '*) note_build "$line" ;;
      *' Built '*) rm -f "$SETUP_DIR/builds" ;;
      *'Installed '* | *'Checked '*) emit progress "done=$total" "total=$total" unit=packages ;;
    esac
  done
  rc=${PIPESTATUS[0]}
  kill "$sampler" 2>/dev/null || :
  wait "$sampler" 2>/dev/null || :
  return "$rc"
}

# These compile for CUDA, which takes minutes: warned of before they start.
LONG_BUILDS=' apex auto-gptq bitsandbytes causal-conv1d deepspeed detectron2 flash-attn flash-attn-3 flashinfer-python
  gsplat llama-cpp-python mamba-ssm mmcv natten nvdiffrast pytorch3d sageattention spconv tinycudann torch-cluster
  torch-scatter torch-sparse transformer-engine vllm xformers '

# note_build LINE: a line of uv's such as `Building flash-attn==2.8.3`.
note_build() {
  local name=${1#*Building }
  case ${LONG_BUILDS//$'\n'/ } in
    *" ${name%%[ =@]*} "*) emit warn code=compiling ;;
    *) printf '%s\n' "$SECONDS" >"$SETUP_DIR/builds" ;;
  esac
}

# Most packages without a wheel are built in a moment; one that isn't is compiled, and that takes minutes.
warn_of_builds() {
  local since
  { read -r since <"$SETUP_DIR/builds"; } 2>/dev/null && [ "$((SECONDS - since))" -ge "${BUILD_PATIENCE-20}" ] || return 0
  rm -f "$SETUP_DIR/builds"
  emit warn code=compiling
}

# report_bytes: reports twice a second how much came since the start. It starts no process: each would take time from uv,
# most of all on one core.
report_bytes() {
  local quiet before came=0 total rc
  # A pipe that nobody writes to.
  exec {quiet}<> <(:)
  bytes_received
  before=$BYTES
  while :; do
    rc=0
    read -rt 0.5 -u "$quiet" _ || rc=$?
    # Only a timeout continues: any other error would come back immediately, again and again.
    [ "$rc" -gt 128 ] || return
    warn_of_builds
    bytes_received
    # A network card that disappeared takes its byte count with it.
    [ "$BYTES" -lt "$before" ] || came=$((came + BYTES - before))
    before=$BYTES
    { read -r total <"$SETUP_DIR/sizes"; } 2>/dev/null || total=
    emit progress "done=$came" "total=$total" unit=bytes
  done
}

# bytes_received: sets BYTES to the sum over all network cards but the loopback.
bytes_received() {
  local name bytes
  BYTES=0
  while IFS=$': \t' read -r name bytes _; do
    case $name:$bytes in lo:* | *: | *:*[!0-9]*) ;; *) BYTES=$((BYTES + bytes)) ;; esac
  done 2>/dev/null </proc/net/dev || :
}

# in_bytes "803.2MiB)": sets BYTES to a whole number.
in_bytes() {
  local number=${1%%[!0-9.]*}.0 unit=1
  case $1 in *GiB*) unit=1073741824 ;; *MiB*) unit=1048576 ;; *KiB*) unit=1024 ;; esac
  set -- "${number%%.*}" "${number#*.}"
  BYTES=$(($1 * unit + ${2:0:1} * unit / 10))
}
