"""Helpers for all other folders: printed text and errors, whole files and folders, types of options."""
