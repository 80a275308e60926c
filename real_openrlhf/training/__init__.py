"""From a recipe to a supervised process in a run folder."""
