"""pass@1 of a checkpoint: draw k samples per problem, grade them, and put the numbers into the paper's table."""
