"""What a run is made of: recipes, algorithms and the user's flags become a plan."""
