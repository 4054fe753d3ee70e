# shellcheck shell=bash
# gpu: is the GPU that was ordered really there? Asked through NVML, before anything is built.

inputs_gpu() {
  find_identity 1 || _identity=
  inputs v1 "$GPU_ORDER" "$_identity"
}

# The verdict holds for as long as the box is up and its devices are there.
check_gpu() {
  find_devices
  ! is_returned || return 1
  [ -s "$BOX_HOME/gpu.json" ] && is_text "$BOX_HOME/gpu.devices" "$DEVICES"
}

is_returned() { is_line "$BOX_HOME/gpu.said" 'verdict return'; }

apply_gpu() {
  local rc=0 asked=()
  write_file "$BOX_HOME/gpu.order" 600 "$GPU_ORDER"$'\n'
  find_devices
  write_file "$BOX_HOME/gpu.devices" 600 "$DEVICES"
  find_wheel
  asked=(--workdir "$BOX_HOME" --index "$INDEX" --wheel "$WHEEL" --git "$CLONE_URL" ${CLOCK_AHEAD:+"--ahead=$CLOCK_AHEAD"})
  ! live_run running >/dev/null || asked+=(--run-alive)
  "$BOX_HOME/agent/bin/python" "$ONBOX" verdict.verify --order "$BOX_HOME/gpu.order" \
    --out "$BOX_HOME/gpu.json" "${asked[@]}" >"$BOX_HOME/gpu.said" 3>&- 9>&- || rc=$?
  report <"$BOX_HOME/gpu.said"
  return "$rc"
}

find_devices() {
  local devices=(/dev/nvidia* /dev/dxg)
  printf -v DEVICES '%s ' "${devices[@]#/dev/}"
}
