# Appended to `smoke/together.py` in a copy of the box's files: GPUs whose pair 1 and 2 has the
# fault that TOGETHER_FAULT names, unless they may not talk directly.

import os as _os
import time as _time

_DIRECT = _os.environ.get("NCCL_P2P_DISABLE") != "1"
_FAULT = _os.environ.get("TOGETHER_FAULT", "")


class _Ill(TorchGroup):  # noqa: F821 - of together.py
    def add_up(self, block):
        if self.rank in {1, 2} and (_DIRECT or _FAULT == "deaf"):
            if _FAULT in {"hangs", "deaf"}:
                _time.sleep(600)
            if _FAULT == "refuses":
                raise RuntimeError("NCCL error: unhandled cuda error\nmore of it")
        if _FAULT == "crawls":
            _time.sleep(0.05)
        super().add_up(block)
        if _FAULT == "lies" and self.rank == 2 and _DIRECT:
            block[7] += 1

    def on(self, other, block):
        if {self.rank, other} == {1, 2}:
            if _FAULT == "hangs":
                _time.sleep(600)
            if _FAULT == "refuses":
                raise RuntimeError("CUDA error: peer access is not supported between these two")
        there = super().on(other, block)
        if {self.rank, other} == {1, 2} and _FAULT == "lies":
            there[5] += 1
        return there


TorchGroup = _Ill
