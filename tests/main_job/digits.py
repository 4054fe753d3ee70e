"""Digits of a file in MNIST's format, learned by a convolutional network on several nodes."""

import gzip
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def read_idx(name: str) -> torch.Tensor:
    """Read unsigned bytes of any shape."""
    raw = gzip.decompress(Path(name).read_bytes())
    shape = [int.from_bytes(raw[4 + 4 * at : 8 + 4 * at], "big") for at in range(raw[3])]
    return torch.frombuffer(bytearray(raw[4 + 4 * raw[3] :]), dtype=torch.uint8).reshape(shape)


dist.init_process_group("gloo")
torch.manual_seed(0)
images = read_idx("data/train-images-idx3-ubyte.gz").float().div(255).sub(0.1307).div(0.3081)
labels = read_idx("data/train-labels-idx1-ubyte.gz").long()
digits = TensorDataset(images.unsqueeze(1), labels)
sampler = DistributedSampler(digits)
network = nn.Sequential(
    *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Linear(16 * 12 * 12, 10)),
)
parallel = DistributedDataParallel(network)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for batch, (image, label) in enumerate(DataLoader(digits, batch_size=64, sampler=sampler)):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(parallel(image), label)
        loss.backward()
        optimizer.step()
        if batch % 4 == 0 and dist.get_rank() == 0:
            print(f"epoch {epoch} batch {batch} loss {loss.item():.4f}", flush=True)
with torch.no_grad():
    right = (network(digits.tensors[0]).argmax(1) == labels).float().mean().item()
print(f"accuracy {right:.3f}", flush=True)
if dist.get_rank() == 0:
    Path("out").mkdir(exist_ok=True)
    torch.save(network.state_dict(), "out/digits.pt")
dist.destroy_process_group()
