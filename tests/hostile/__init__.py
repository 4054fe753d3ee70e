"""People and boxes that mean harm: what they type and answer, and that nothing comes of it."""
