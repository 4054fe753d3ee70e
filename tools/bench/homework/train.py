# mypy: ignore-errors
"""The smallest possible training: most of its time is its imports."""

import pandas as pd
import torch
import transformers

torch.manual_seed(0)
model = transformers.GPT2LMHeadModel(
    transformers.GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=128, n_positions=32)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
batch = torch.randint(0, 128, (4, 32))
losses = []
for step in range(1, 4):
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    print(f"step {step} loss {losses[-1]:.4f}", flush=True)
print(pd.Series(losses).describe().to_string(), flush=True)
