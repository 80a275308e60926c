"""Parts of other libraries that are replaced at run time. Each module says why; patches/README.md lists the parts."""
