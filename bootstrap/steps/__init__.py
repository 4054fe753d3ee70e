"""The steps: names and order, the events and codes that they send, and quoting for a shell."""
