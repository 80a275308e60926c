"""Recipes, algorithms and the user's flags become a run's flags."""
