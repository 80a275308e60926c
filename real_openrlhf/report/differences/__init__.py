"""Differences of settings from the first one: the test, what it could have seen, and the table."""
