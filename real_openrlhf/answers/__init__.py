"""What a run's model wrote: groups that were kept of each step, in a terminal and on the report's page."""
