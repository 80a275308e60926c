"""Train and evaluate many runs of one recipe, then write the report."""
