"""Code that the patched OpenRLHF calls. A folder serves one process (actor, controller, engine) or one topic."""
