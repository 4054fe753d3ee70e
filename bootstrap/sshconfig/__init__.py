"""The known boxes as hosts of the user's own ssh config, so that any program reaches them."""
