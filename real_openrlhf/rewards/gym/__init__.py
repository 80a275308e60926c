"""Tasks of the package reasoning-gym: which are offered, and when an answer to one is right."""
