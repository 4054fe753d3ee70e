"""What a training will cost, and which GPU holds it. Arithmetic and dated prices; rents nothing."""
