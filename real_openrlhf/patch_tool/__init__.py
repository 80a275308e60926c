"""What `real_openrlhf.patching` is made of; standard library only, for environments that are half built."""
