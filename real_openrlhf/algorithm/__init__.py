"""The paper: formulas, weights, plan and metrics. Torch or the standard library only, nothing of OpenRLHF."""
