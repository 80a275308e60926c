"""What only a CPU needs; on a GPU none of it is called."""
