"""An environment of conda packages. Comes with a profile that names some."""
