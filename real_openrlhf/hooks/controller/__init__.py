"""Code of the controller's process: labels, the plan of a rollout batch, the run's log."""
