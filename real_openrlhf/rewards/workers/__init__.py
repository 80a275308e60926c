"""Worker processes of the graders: a pool of them, what each runs, and the graders of others."""
