"""Editors that open a folder on a box over ssh, and the settings that spare its questions."""
