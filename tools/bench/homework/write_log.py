"""Writes a training log of SIZE bytes to standard output, in lines that differ."""

import sys

size = int(sys.argv[1])
written = number = 0
while written < size:
    lines = []
    for _ in range(10_000):
        number += 1
        lines.append(
            f"epoch {number // 5000:4d} step {number:9d} loss {2.5 + (number % 977) / 1000:.4f} "
            f"grad_norm {number % 89 / 100:.2f} lr 3.0e-04 tokens/s {41_000 + number % 3001}\n"
        )
    block = "".join(lines)[: size - written]
    sys.stdout.write(block)
    written += len(block)
