"""A training by torch's DistributedDataParallel over gloo, started by torchrun without a flag.

It checks an all-reduce, then fits a small network to fixed data; every node has its part of each
batch. out/steps.json gets the loss over the whole batch, and the sum of all weights, of each step.
"""

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, count = dist.get_rank(), dist.get_world_size()

total = torch.tensor([rank + 1.0, (rank + 1.0) ** 2])
dist.all_reduce(total)
ranks = range(1, count + 1)
assert total.tolist() == [sum(ranks), sum(each**2 for each in ranks)], total
print(f"rank {rank} of {count}: the all-reduce is right", flush=True)

torch.manual_seed(7)
network = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
inputs = torch.randn(64, 8)
wanted = inputs.sum(1, keepdim=True).sin()
own = slice(rank * 64 // count, (rank + 1) * 64 // count)
parallel = DistributedDataParallel(network)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1, momentum=0.9)
steps = []
for _ in range(40):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(parallel(inputs[own]), wanted[own])
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        whole = nn.functional.mse_loss(network(inputs), wanted).item()
        steps.append([whole, sum(each.sum().item() for each in network.parameters())])
Path("out").mkdir(exist_ok=True)
Path("out/steps.json").write_text(json.dumps(steps))
print(f"step {len(steps)} loss {steps[-1][0]:.4f}", flush=True)
dist.destroy_process_group()
