"""From a checked plan to supervised processes: place, process, progress."""
