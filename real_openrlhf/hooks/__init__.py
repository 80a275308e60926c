"""What the patches call: one module a seam at the top, behind them a folder for each process."""
