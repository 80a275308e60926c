"""vLLM: its process, what it is sent with a prompt, new weights."""
