"""Python that runs on the box; imports nothing from its siblings. Python 3.8 and up."""
