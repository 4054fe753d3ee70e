"""What the documents show is tested against the code that it is made from."""
