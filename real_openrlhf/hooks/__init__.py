"""What the patches call: one module a seam. The only folder that may import OpenRLHF."""
