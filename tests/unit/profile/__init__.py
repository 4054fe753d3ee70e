"""Tests of bootstrap.profile."""
