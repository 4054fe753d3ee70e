"""The items of `data:` that the box fetches itself. Comes with a profile that has some."""
