"""REAL's flags in OpenRLHF's parser, and the checks that refuse wrong combinations of flags."""
