"""A training small enough for a laptop: a straight line is fitted by gradient descent."""

import random
import sys
import time

from tqdm import trange

random.seed(7)
points = [(x / 50, 3 * x / 50 + 2 + random.gauss(0, 0.1)) for x in range(100)]
slope, offset, rate = 0.0, 0.0, 0.1

for step in trange(1, 61, desc="training", disable=not sys.stdout.isatty()):
    errors = [(slope * x + offset - y, x) for x, y in points]
    slope -= rate * sum(2 * error * x for error, x in errors) / len(points)
    offset -= rate * sum(2 * error for error, _ in errors) / len(points)
    loss = sum(error**2 for error, _ in errors) / len(points)
    if step == 1 or step % 10 == 0:
        print(f"step {step:3}  loss {loss:.4f}  y = {slope:.2f} x + {offset:.2f}", flush=True)
    time.sleep(0.1)
