"""Training on each policy rank: forward, exchange of scores, weights, backward, logged numbers."""
