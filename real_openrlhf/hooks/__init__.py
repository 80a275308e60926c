"""The patches call these modules: one for each patched place at the top, and a folder for each process."""
