"""Python that runs on the box, a folder for each thing it does. Python 3.8 and up.

On a box all of it lies beside each other, in `box/` (`bootstrap/render/parts.py`). Two folders
travel with a question and don't stay: `transfer/` and `report/`. What several share lies here.
"""
