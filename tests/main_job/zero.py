"""A training by DeepSpeed's ZeRO; on the CPU its processes talk over gloo."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

# Processes of one CPU would share memory by a program that it compiles: boxes lack a compiler.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.init_distributed()
rank, count = dist.get_rank(), dist.get_world_size()

torch.manual_seed(7)
network = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
inputs = torch.randn(64, 8)
wanted = inputs.sum(1, keepdim=True).sin()
own = slice(rank * 64 // count, (rank + 1) * 64 // count)
engine, *_ = deepspeed.initialize(
    model=network,
    model_parameters=network.parameters(),
    config={
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 64 // count,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
    },
)
losses = []
for _ in range(40):
    loss = nn.functional.mse_loss(engine(inputs[own]), wanted[own])
    engine.backward(loss)
    engine.step()
    losses.append(loss.item())
weights = sum(each.sum().item() for each in engine.module.parameters())
print(f"ZeRO {rank} of {count}: loss {losses[0]:.3f} to {losses[-1]:.3f}, weights {weights:.6f}")
dist.destroy_process_group()
