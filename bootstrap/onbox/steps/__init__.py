"""The steps of a setup, a class each in a file of its name; the others are `steps/NAME.sh`."""
