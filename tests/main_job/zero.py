"""A training by DeepSpeed's ZeRO, which accelerate starts; on the CPU it talks over gloo."""

import torch
from accelerate import Accelerator, DeepSpeedPlugin
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(7)
accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=1))
network = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
inputs = torch.randn(64, 8)
wanted = inputs.sum(1, keepdim=True).sin()
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
batches = DataLoader(TensorDataset(inputs, wanted), batch_size=16)
engine, optimizer, batches = accelerator.prepare(network, optimizer, batches)
losses = []
for _ in range(10):
    for given, expected in batches:
        loss = nn.functional.mse_loss(engine(given), expected)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    losses.append(accelerator.gather(loss.detach().reshape(1)).mean().item())
weights = sum(each.sum().item() for each in accelerator.unwrap_model(engine).parameters())
rank, count = accelerator.process_index, accelerator.num_processes
print(
    f"{type(engine).__name__} {rank} of {count}: loss {losses[0]:.4f} {losses[-1]:.4f}, "
    f"weights {weights:.6f}",
    flush=True,
)
