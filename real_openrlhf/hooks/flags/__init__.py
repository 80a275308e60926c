"""REAL's flags in OpenRLHF's parser, and the runs that they refuse."""
