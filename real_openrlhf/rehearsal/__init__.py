"""`--rehearse`: a run as it is typed for GPUs, shrunk by one rule, on two CPU cores."""
