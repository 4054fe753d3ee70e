"""A stand-in for NVIDIA's library, built from C, that answers what a scenario says."""
