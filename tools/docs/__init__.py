"""What writes parts of docs/ from the code, and checks the links of the built site."""
