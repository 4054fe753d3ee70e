"""Every code that the box can send is known on this machine."""

from bootstrap.onbox.verdict import gpu_errors, judge
from bootstrap.steps.event_codes import CODES

PROBLEMS = [
    value for value in vars(gpu_errors).values() if isinstance(value, gpu_errors.GpuProblem)
]
SENT = {problem.code for problem in [*PROBLEMS, *gpu_errors.NVML.values()]}
SENT |= {check.code for check in (*judge.OF_GPUS, *judge.BOX_CHECKS)}
SENT |= {"gpu-unread", "box-unread", "gpu-sick"}


def test_every_error_code_of_the_gpu_check_on_a_box_has_a_message_on_this_machine():
    assert len(SENT) > 20
    assert SENT - {""} - set(CODES) == set()  # a check that only notes has no code
