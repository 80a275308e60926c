"""What a run leaves behind: its folder, and how it ended."""
