"""The parts of `real_openrlhf.patching`; standard library only, for environments that are half built."""
