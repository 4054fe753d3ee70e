"""Every threshold of the verdict, by what it judges.

docs/verdict.md has the sources, and lists each number for users: change it there too.
"""

from __future__ import annotations

GPU = {
    "memory": 0.96,  # a 24 GB card shows 23.99 GiB or less
    "memory_ecc": 0.96 * 15 / 16,  # GDDR cards keep 1/16 for ECC: A10, L4, L40S, T4
    "memory_slice": 0.88,  # named for its share, rounded up: 1g.18gb of an H200 has 16 GiB
    "used_gib": 1.0,
    "power": 0.99,  # of the default; some cards round
    "heat": 10,  # °C that must be left to the temperature at which the card slows itself down
    "busy": 20,  # percent; below this, a link that stepped down is just at rest
}
MACHINE = {
    "memory": 0.96,  # kernel and firmware keep a part of what is sold
    "shm_gib": 1.0,  # containers have 64 MiB unless set otherwise
    "disk_gib": 10.0,  # an environment with torch, its downloads, a checkpoint
    "disk_mb_s": 20.0,  # a checkpoint of 1 GB takes 50 s
}
NETWORK = {
    "index_mb_s": 2.0,  # torch and its dependencies, 3 GB, take 25 minutes
    "git_s": 1.0,
    "clock_s": 60.0,
}
# Shares of a model's peak. Below: half a card, a card held down, a bus with half the lanes.
SMOKE = {
    "speed": 0.45,
    "scarce_speed": 0.25,  # of cards whose power limit keeps them far below their peak
    "memory_speed": 0.6,
    "bus": 0.45,
    "nvlink": 0.3,  # of an all-reduce: healthy cards reach 0.6 and more
    "pcie": 0.1,  # likewise, over the bus: 0.2 through the machine's memory, 0.6 from card to card
    "tried_memory": 0.8,  # of the memory, for the full test
}
