"""What every room uses: printed text and errors, whole files and folders, numbers from a command line."""
