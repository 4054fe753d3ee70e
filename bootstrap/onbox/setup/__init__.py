"""The engine of a setup: what is asked for, one setup at a time, the graph of its steps."""
