#!/usr/bin/env bash
# boxstrap VERSION: sets up this box by the profile "ssh".
# shellcheck disable=SC1003,SC2016,SC2034,SC2088,SC2317 # data in quotes; functions called by name
# What follows: what the box should become, the small library, then one part for each step.
# The braces make it whole or nothing: bash reads all of it before it runs any of it.
{
# ---- what this box should become ---------------------------------------------------------------

WORKDIR='~'
IS_LOCAL=''
MIN_FREE_MB=512
MIN_TMP_MB=16
VOLUME_AT=''
AUTHORIZED_KEYS=()
KNOWN_HOSTS=(
  'github.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl'
  'github.com ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEmKSENjQEezOmxkZMy7opKgwFB9nkt5YRrYMjNuG5N87uRgg6CLrbo5wAdT/y6v0mKV0U2w0WZ2YB/++Tpockg='
  'github.com ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQCj7ndNxQowgcQnjshcLrqPEiiphnt+VTTvDP6mHBL9j1aNUkY4Ue1gvwnGLVlOhGeYrnZaMgRK6+PKCUXaDbC7qtbW8gIkhL7aGCsOr/C56SJMy/BCZfxd1nWzAOxSDPgVsmerOBYfNqltV9/hWCqBywINIR+5dIg6JTJ72pcEpEjcYgXkE2YEFXV1JHnsKgbLWNlhScqb2UmyRkQyytRLtL+38TGxkxCflmO+5Z8CSSNY7GidjMIZ7Q4zMjA2n1nGrlTDkzwDCsw+wqFPGQA179cnfGWOWRVruj16z6XyvxvjJwbz0wQZ75XK5tKSb7FNyeIEs4TT4jk+S4dhPeAUC5y+bDYirYgM4GC7uEnztnZyaVWQ7B381AK4Qdrwt51ZqExKbQpTUNn+EjqoTwvqNj4kqx5QUCI0ThS/YkOxJCXmPUWZbhjpCg56i+2aB6CmK2JGhn57K5mj0MNdBXA4/WnwH6XoPWJzK5Nyu2zB3nAZp+S5hpQs+p1vN1/wsjk='
  '@revoked github.com ssh-rsa AAAAB3NzaC1yc2EAAAABIwAAAQEAq2A7hRGmdnm9tUDbO9IDSwBK6TbQa+PXYPCPy6rbTrTtw7PHkccKrpp0yVhp5HdEIcKr6pLlVDBfOLX9QUsyCOV0wzfjIJNlGEYsdlLJizHhbn2mUjvSAHQqZETYP81eFzLQNnPHt4EVVUh7VfDESU84KezmD5QlWpXLmvU31/yMf+Se8xhHTvKSCZIFImWwoG6mbUoWf9nzpIoaSjB+weqqUUmpaaasXVal72J+UX2B+2RPW3RcT0eOzQgqlJL3RKrTJvdsjE3JEAvGq3lGHSZXy28G3skua2SmVi/w4yCE6gbODqnTWlg7+wC604ydGXA8VJiS5ap43JXiUFFAaQ=='
  'gitlab.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAfuCHKVTjquxvt6CM6tdG4SLp1Btn/nOeHHE5UOzRdf'
  'bitbucket.org ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIazEu89wgQZ4bqs3d63QSMzYVa0MuJ2e2gKTKqu+UUO'
  'hf.co ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINJjhgtT9FOQrsVSarIoPVI1jFMh3VSHdKfdqp/O776s'
  'ssh.dev.azure.com ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7Hr1oTWqNqOlzGJOfGJ4NakVyIzf1rXYd4d7wo6jBlkLvCA4odBlL0mDUyZ0/QUfTTqeu+tm22gOsv+VrVTMk6vwRU75gY/y9ut5Mb3bR5BV58dKXyq9A9UeB5Cakehn5Zgm6x1mKoVyf+FFn26iYqXJRgzIZZcZ5V6hrE0Qg39kZm4az48o0AUbf6Sp4SLdvnuMa2sVNwHBboS7EJkm57XQPVU3/QpyNLHbWDdzwtrlS+ez30S3AdYhLKEOxAG8weOnyrtLJAUen9mTkol8oII1edf7mWWbWVf0nBmly21+nZcmCTISQBtdcyPaEno7fFQMDD26/s0lfKob4Kw8H'
  'vs-ssh.visualstudio.com ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7Hr1oTWqNqOlzGJOfGJ4NakVyIzf1rXYd4d7wo6jBlkLvCA4odBlL0mDUyZ0/QUfTTqeu+tm22gOsv+VrVTMk6vwRU75gY/y9ut5Mb3bR5BV58dKXyq9A9UeB5Cakehn5Zgm6x1mKoVyf+FFn26iYqXJRgzIZZcZ5V6hrE0Qg39kZm4az48o0AUbf6Sp4SLdvnuMa2sVNwHBboS7EJkm57XQPVU3/QpyNLHbWDdzwtrlS+ez30S3AdYhLKEOxAG8weOnyrtLJAUen9mTkol8oII1edf7mWWbWVf0nBmly21+nZcmCTISQBtdcyPaEno7fFQMDD26/s0lfKob4Kw8H'
)
REPO_KEY='homework-01234567'
REPO_USUAL_KEY=''
REPO_ROOT=''
REPO_NAME='homework'
REPO_COMMIT='0123456789abcdef0123456789abcdef01234567'
REPO_SNAPSHOT='89abcdef0123456789abcdef0123456789abcdef'
REPO_TREE='fedcba9876543210fedcba9876543210fedcba98'
REPO_BRANCH='main'
REPO_TAGS=()
TAG_OBJECTS=''
REPO_URL='https://example.org/me/homework.git'
REPO_ACCESS='over-ssh'
COMMIT_PATIENCE=600
CLIENT_PATIENCE=120
LOCK_PATIENCE=300
GIT_USER_NAME='Zoë O'\''Brien'
GIT_USER_EMAIL='zoe@example.org'
PYTHON_VERSION=''
VENV='.venv'
INSTALLER='uv'
TORCH_BACKEND='auto'
REUSE='auto'
REQUIREMENTS_SET=''
REQUIREMENTS=()
LOCK=''
CONDA=''
CONDA_TOOLS=()
EXTRAS=()
PYTHON_INDEX=()
LOCK_OPTIONS=()
ADDED_TO_LOCK=()
ADDED_ARGUMENTS=()
BUILT_LAST=()
NAMES_OF_LAST=()
DEPENDENCIES=()
PYTHON_ID='44136f'
PACKAGES=()
GPU_ORDER='{}'
CLONE_URL=''
SMOKE='quick'
ENV_NAMES=()
ENV_VALUES=()
SECRETS=()
SECRETS_ID=''
SECRET_IDS=()
DATA=''
LEASE=''
PREPARE=()
SHARED=()
TRAIN_COMMAND='python train.py'
TRAIN_SESSION='train'
TRAIN_NODES=''
RESULTS_OF_ALL=''
TRAIN_AT_BOOT='leave'
TRAIN_GRACE=10
TRAIN_RESUME=''
TRAIN_ON_NOTICE=''
LOG_MAX_MIB=1024
RESULTS=()
METRICS=()
RESULTS_TO=()
NOTIFY=()
INDEX='(the index of pip)'
AGENT_PACKAGES=(
  'nvidia-ml-py>=12.560,<14'
  'psutil>=5.9,<8'
)
UV_VERSION='0.13.8'
UV_OLDEST='0.8.0'
UV_WHEELS=(
  'Linux-x86_64|uv-0.13.8-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl|e18a57b8b352eb7c8feb317b9f6f533c8f0ad9673fd6cf34bbe3cf1a9f6a8984'
  'Linux-aarch64|uv-0.13.8-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl|0b3e8b1a4f5e405e31e2ff33de8af4744831e9f7338539671efbd8c3c94e791d'
  'Darwin-arm64|uv-0.13.8-py3-none-macosx_11_0_arm64.whl|62b6943c7fd64fac6854f780bea6e0359e5a5bc3241f83ee357bb38276afac49'
  'Darwin-x86_64|uv-0.13.8-py3-none-macosx_10_12_x86_64.whl|b7124ca1956ec2e476a1003ea5715a15f0266afaec37f4dc9c6972ba8183e6d1'
)
STEPS=(
  'preflight'
  'shell'
  'ssh'
  'tools'
  'agent'
  'gpu'
  'repo'
  'python'
  'smoke'
  'train'
)
declare -A NEEDS=(
  ['preflight']=''
  ['shell']='preflight'
  ['ssh']='preflight'
  ['tools']='preflight'
  ['agent']='tools'
  ['gpu']='agent'
  ['repo']='tools'
  ['python']='repo gpu'
  ['smoke']='python gpu'
  ['train']='python smoke shell ssh'
)
REPO_STEPS='repo python train'

# ---- library -----------------------------------------------------------------------------------

# (templates/lib/main.sh)

# (templates/lib/setup.sh)

# (templates/lib/base.sh)

# (templates/lib/owner.sh)

# (templates/lib/process.sh)

# (templates/lib/run_state.sh)

# (templates/lib/run_processes.sh)

# (templates/lib/queue.sh)

# (templates/lib/repository.sh)

# (templates/lib/events.sh)

# (templates/lib/errors.sh)

# (templates/lib/stamps.sh)

# (templates/lib/lock.sh)

# (templates/lib/packs.sh)

# (templates/lib/git_locks.sh)

# (templates/lib/git.sh)

# (templates/lib/place.sh)

# (templates/lib/trees.sh)

# (templates/lib/engine.sh)

# (templates/lib/client.sh)

# (templates/lib/work.sh)

# (templates/lib/runs.sh)

# (templates/lib/resume.sh)

# ---- steps -------------------------------------------------------------------------------------

# (templates/lib/packages.sh)

# (templates/lib/uv.sh)

# (templates/lib/venv.sh)

# (templates/lib/dependencies.sh)

# (templates/lib/sources.sh)

# (templates/lib/projects.sh)

# (templates/lib/uv_progress.sh)

# (templates/lib/conda.sh)

# (templates/lib/fits.sh)

# (templates/lib/reuse.sh)

# (templates/lib/bytecode.sh)

# (templates/steps/preflight.sh)

# (templates/steps/shell.sh)

# (templates/steps/ssh.sh)

# (templates/steps/tools.sh)

# (templates/steps/agent.sh)

# (templates/steps/gpu.sh)

# (templates/steps/repo.sh)

# (templates/steps/python.sh)

# (templates/steps/smoke.sh)

# (templates/steps/train.sh)

# ---- files of the box --------------------------------------------------------------------------

unpack_box() {
  unpack_programs <<'END_OF_BOX_FILES'
command.sh
# (the file command.sh)
enter.sh
# (the file enter.sh)
keep_log.sh
# (the file keep_log.sh)
processes.sh
# (the file processes.sh)
runner.sh
# (the file runner.sh)
waiter.sh
# (the file waiter.sh)
window.sh
# (the file window.sh)
onbox/__init__.py
# (the file onbox/__init__.py)
onbox/__main__.py
# (the file onbox/__main__.py)
onbox/machine_limits.py
# (the file onbox/machine_limits.py)
onbox/metrics.py
# (the file onbox/metrics.py)
onbox/pip_indexes.py
# (the file onbox/pip_indexes.py)
onbox/processes.py
# (the file onbox/processes.py)
onbox/python/__init__.py
# (the file onbox/python/__init__.py)
onbox/python/accepted.py
# (the file onbox/python/accepted.py)
onbox/python/bytecode.py
# (the file onbox/python/bytecode.py)
onbox/python/copy_packages.py
# (the file onbox/python/copy_packages.py)
onbox/python/fetch_uv.py
# (the file onbox/python/fetch_uv.py)
onbox/python/image_packages.py
# (the file onbox/python/image_packages.py)
onbox/python/imports.py
# (the file onbox/python/imports.py)
onbox/python/pip_unlisted.py
# (the file onbox/python/pip_unlisted.py)
onbox/python/reuse.py
# (the file onbox/python/reuse.py)
onbox/python/torch_compat.py
# (the file onbox/python/torch_compat.py)
onbox/redact.py
# (the file onbox/redact.py)
onbox/results/__init__.py
# (the file onbox/results/__init__.py)
onbox/results/at_risk.py
# (the file onbox/results/at_risk.py)
onbox/results/complete_files.py
# (the file onbox/results/complete_files.py)
onbox/results/disposable.py
# (the file onbox/results/disposable.py)
onbox/results/keep_results.py
# (the file onbox/results/keep_results.py)
onbox/results/run_results.py
# (the file onbox/results/run_results.py)
onbox/retry_after.py
# (the file onbox/retry_after.py)
onbox/run_folder.py
# (the file onbox/run_folder.py)
onbox/runs/__init__.py
# (the file onbox/runs/__init__.py)
onbox/runs/disk_watch.py
# (the file onbox/runs/disk_watch.py)
onbox/runs/link_pushed.py
# (the file onbox/runs/link_pushed.py)
onbox/runs/monitor.py
# (the file onbox/runs/monitor.py)
onbox/runs/news.py
# (the file onbox/runs/news.py)
onbox/runs/notice.py
# (the file onbox/runs/notice.py)
onbox/runs/status.py
# (the file onbox/runs/status.py)
onbox/runs/tell.py
# (the file onbox/runs/tell.py)
onbox/runs/top_stream.py
# (the file onbox/runs/top_stream.py)
onbox/smoke/__init__.py
# (the file onbox/smoke/__init__.py)
onbox/smoke/judge.py
# (the file onbox/smoke/judge.py)
onbox/smoke/peaks.py
# (the file onbox/smoke/peaks.py)
onbox/smoke/smoke.py
# (the file onbox/smoke/smoke.py)
onbox/smoke/stress.py
# (the file onbox/smoke/stress.py)
onbox/smoke/together.py
# (the file onbox/smoke/together.py)
onbox/verdict/__init__.py
# (the file onbox/verdict/__init__.py)
onbox/verdict/box_checks.py
# (the file onbox/verdict/box_checks.py)
onbox/verdict/check.py
# (the file onbox/verdict/check.py)
onbox/verdict/expected_hardware.py
# (the file onbox/verdict/expected_hardware.py)
onbox/verdict/gpu_checks.py
# (the file onbox/verdict/gpu_checks.py)
onbox/verdict/gpu_errors.py
# (the file onbox/verdict/gpu_errors.py)
onbox/verdict/gpu_models.py
# (the file onbox/verdict/gpu_models.py)
onbox/verdict/gpu_reader.py
# (the file onbox/verdict/gpu_reader.py)
onbox/verdict/judge.py
# (the file onbox/verdict/judge.py)
onbox/verdict/machine_reader.py
# (the file onbox/verdict/machine_reader.py)
onbox/verdict/network_reader.py
# (the file onbox/verdict/network_reader.py)
onbox/verdict/readers.py
# (the file onbox/verdict/readers.py)
onbox/verdict/thresholds.py
# (the file onbox/verdict/thresholds.py)
onbox/verdict/verify.py
# (the file onbox/verdict/verify.py)
END_OF_BOX_FILES
}

main "$@"
exit
}
