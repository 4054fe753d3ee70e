"""Editors that open a folder on a box over ssh, and the settings by which nothing is asked."""
