# shellcheck shell=bash
# gpu: is the GPU that was ordered really there? Asked through NVML, before anything is built.

# A verdict of fewer checks is none of all of them.
inputs_gpu() {
  find_identity 1 || _identity=
  inputs v1 "$GPU_ORDER" "$_identity" ${EDITION:+"$EDITION"}
}

# The verdict holds for as long as the box is up and its devices are there.
check_gpu() {
  find_devices
  [ -s "$BOX_HOME/gpu.json" ] && is_text "$BOX_HOME/gpu.devices" "$DEVICES"
}

apply_gpu() {
  local rc=0 code asked=() driver
  write_file "$BOX_HOME/gpu.order" 600 "$GPU_ORDER"$'\n'
  find_devices
  write_file "$BOX_HOME/gpu.devices" 600 "$DEVICES"
  find_wheel # full
  asked=(--workdir "$BOX_HOME" --index "$INDEX" --wheel "$WHEEL" --git "$CLONE_URL") # full
  [ -z "${CLOCK_AHEAD-}" ] || asked+=("--ahead=$CLOCK_AHEAD") # full
  ! any_alive_run || asked+=(--run-alive)
  "$BOX_HOME/agent/bin/python" "$PROGRAMS/verify.py" --order "$BOX_HOME/gpu.order" \
    --out "$BOX_HOME/gpu.json" "${asked[@]}" >"$BOX_HOME/gpu.said" 3>&- 9>&- || rc=$?
  cat "$BOX_HOME/gpu.said"
  driver=$(sed -n 's/^driver //p' "$BOX_HOME/gpu.said")
  write_file "$BOX_HOME/gpu.driver" 600 "${driver:+$driver$'\n'}"
  reasons return | head -n 1 >"$STEP_CODE"
  for code in $(reasons warn); do emit warn "code=$code"; done
  return "$rc"
}

# The codes of what spoke against the box, the weightiest first.
reasons() { sed -n "s/^reason $1 \\([a-z0-9-]*\\).*/\\1/p" "$BOX_HOME/gpu.said"; }

find_devices() {
  local devices=(/dev/nvidia* /dev/dxg)
  printf -v DEVICES '%s ' "${devices[@]#/dev/}"
}
