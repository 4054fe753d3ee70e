"""What `report` reads on a box."""
