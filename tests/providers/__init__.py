"""Accounts of providers, against simulations that are held to their own documents."""
