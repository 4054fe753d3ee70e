"""A real VS Code server on a box, opened in a browser: `make editor-proof`."""
