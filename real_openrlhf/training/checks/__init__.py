"""Checks before a run starts: flags, data, model, reward, memory."""
