"""When a box ends itself, and what would be lost then. Comes with a profile that has a lease."""
