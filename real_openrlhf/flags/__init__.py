"""Flags of OpenRLHF and ours as a run's arguments, and what follows from them: one way before a start and in a run."""
