"""The kept answers of a run (rollouts.jsonl), shown in a terminal and on the report's page."""
