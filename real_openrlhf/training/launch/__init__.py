"""From checked flags to supervised processes: place, process, progress."""
