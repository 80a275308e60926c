"""What a run would take, before it starts: gigabytes, hours, dollars, disk."""
