"""Several boxes at a time: which ones are meant, and a command on all of them. Nothing central has
to live: each box has its own queue, and this machine may leave."""
