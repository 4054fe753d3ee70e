# Appended to `smoke/stress.py` in a copy of the box's files: a GPU with one fault, named by its
# UUID, which `smoke.py` passes to each worker as its visible device.


class _Sick(Torch):  # noqa: F821 - of stress.py
    def __init__(self, device):
        super().__init__(device)
        import os

        self.fault = os.environ["CUDA_VISIBLE_DEVICES"].rpartition("-")[2]
        self.products = 0
        if self.fault == "refuses":
            raise RuntimeError("CUDA error: system not yet initialized\nCompile with …")

    def memory(self):
        return 1 << 24, 1 << 24

    def salted(self, pattern, salt):
        block = super().salted(pattern, salt)
        if self.fault == "forgets" and salt == 5:
            block[77] ^= 1 << 20  # one bit of one word
        return block

    def product(self, a, b, kind):
        c = super().product(a, b, kind)
        self.products += 1
        if self.fault == "miscounts" and c.shape[0] == 1024 and kind == "bf16":
            c[3, 4] += 1
        if self.fault == "wavers" and self.products % 7 == 0:
            c[0, 0] = self.torch.nextafter(c[0, 0].float(), self.torch.tensor(9e9)).to(c.dtype) * 2
        if self.fault == "dies" and self.products == 3:
            import os

            os.abort()
        return c

    def copy(self, to, source):
        if self.fault == "crawls":
            import time

            time.sleep(0.2)
        super().copy(to, source)


Torch = _Sick
