"""What is asked before a run starts: flags, data, model, reward, memory."""
