"""A training that torchrun begins again with the nodes that are left; alone it ends soon."""

import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
count = dist.get_world_size()
print(f"world of {count}, after {os.environ['TORCHELASTIC_RESTART_COUNT']} restarts", flush=True)
for _ in range(3 if count == 1 else 3000):
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == count
    time.sleep(0.1)
dist.destroy_process_group()
