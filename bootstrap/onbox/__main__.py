"""`python -m onbox MODULE ARGUMENT…`: run a program, `main` of a module such as `runs.monitor`.

A box names this file instead of the package: `-m` takes 5 ms more, and an isolated Python doesn't
find the package. No bytecode is written: a check leaves no files behind.
"""

import os
import sys
from importlib import import_module

HERE = os.path.dirname(os.path.abspath(__file__))
if not __package__:  # started by its path: PEP 366
    __package__ = os.path.basename(HERE)
    sys.path = [os.path.dirname(HERE)] + [
        path for path in sys.path if os.path.abspath(path) != HERE
    ]
    sys.dont_write_bytecode = True
    import_module(__package__)
    del sys.path[0]  # none of our modules shadows one of the environment's

if __name__ == "__main__":
    sys.exit(import_module("." + sys.argv.pop(1), __package__).main())
