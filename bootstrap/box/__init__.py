"""Python that runs on the box, a folder for each thing it does. Python 3.8 and up.

On a box all files are in one folder, `box/` (`bootstrap/shell.py`). Most of `transfer/` and
all of `report/` travel with a question and don't stay. What several folders share is here.
"""
