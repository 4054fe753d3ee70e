"""What `report` reads on a box. Its text travels with the question, and nothing of it stays there.

Standard library alone, for Python 3.8 and later.
"""
