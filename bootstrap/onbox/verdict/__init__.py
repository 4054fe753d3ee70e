"""Keep this box, or return it? Readers of GPUs, machine and network, checks, and the judge."""
