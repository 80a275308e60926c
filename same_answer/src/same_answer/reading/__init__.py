"""From the text of an answer to its tree."""
