"""What every room uses: errors, whole files and folders, text on a terminal, numbers from a command line."""
