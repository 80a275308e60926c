"""Recipes, algorithms and the user's flags become the plan of a run."""
