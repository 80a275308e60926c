"""In each rank of the policy: forward, exchange, weigh, backward, and what it logs."""
