"""vLLM: its process, the parameters of each request, the transfer of new weights."""
