"""Every code that the box can send is known on this machine."""

from bootstrap.box.verdict import gpu_errors, verify_table
from bootstrap.codes import CODES

PROBLEMS = [
    value for value in vars(gpu_errors).values() if isinstance(value, gpu_errors.GpuProblem)
]
SENT = {problem.code for problem in [*PROBLEMS, *gpu_errors.NVML.values()]}
SENT |= {check.code for check in (*verify_table.OF_GPUS, *verify_table.BOX_CHECKS)}
SENT |= {"gpu-unread", "box-unread", "gpu-sick"}


def test_every_code_of_the_gpu_check_is_known_here():
    assert len(SENT) > 20
    assert SENT - {""} - set(CODES) == set()  # a check that only notes has no code
