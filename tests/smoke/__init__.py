"""The smoke test of a GPU: its arithmetic by the real torch on this processor, faults injected."""
