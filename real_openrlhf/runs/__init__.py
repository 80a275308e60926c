"""Run folders: their records, and how a run ended."""
