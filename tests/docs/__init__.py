"""What the documents show is made here from the code, and tested against it."""
