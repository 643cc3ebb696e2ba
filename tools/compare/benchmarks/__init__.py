"""Tables of data loaders, filled by tools/compare/all.py: a file for each library, used as its manual says."""
