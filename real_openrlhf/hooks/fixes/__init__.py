"""Parts of other libraries that are replaced at run time: each says why; patches/README.md lists them."""
