"""Helpers for all other folders: text and errors, signals, secrets, files and whose they are, types of options."""
