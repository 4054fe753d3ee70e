"""A stand-in for torchrun and a training: nodes add up numbers by the variables that it has.

usage: python reduce.py VALUE [SECONDS [CODE RANK]]
All add VALUE + rank over MASTER_ADDR:MASTER_PORT, write the sum to out/sum.txt, stay for SECONDS,
and the one of that RANK ends with CODE.
"""

import os
import socket
import sys
import time
from pathlib import Path

value, stays = float(sys.argv[1]), float((*sys.argv, "0")[2])
code, failing = (int(word) for word in sys.argv[3:5]) if len(sys.argv) > 3 else (0, 0)
rank, count = int(os.environ["PET_NODE_RANK"]), int(os.environ["PET_NNODES"])
there = os.environ["PET_MASTER_ADDR"], int(os.environ["PET_MASTER_PORT"])
value += rank
if rank == 0:
    with socket.create_server(there) as door:
        links = [door.accept()[0] for _ in range(count - 1)]
    total = value + sum(float(link.recv(100)) for link in links)
    for link in links:
        link.sendall(str(total).encode())
else:
    for _ in range(200):
        try:
            link = socket.create_connection(there)
            break
        except ConnectionRefusedError:  # node 0 begins a moment later
            time.sleep(0.1)
    link.sendall(str(value).encode())
    total = float(link.recv(100))
Path("out").mkdir(exist_ok=True)
Path("out/sum.txt").write_text(f"{total}\n")
print(f"rank {rank} of {count}: sum {total}", flush=True)
time.sleep(stays)
sys.exit(code if rank == failing else 0)
