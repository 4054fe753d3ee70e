"""The profile's variables, looked for in each kind of shell."""
