"""Training sets and benchmarks, from the hub or from local files, as OpenRLHF's JSONL."""
