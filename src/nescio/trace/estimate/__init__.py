"""The table of classes × layers: which entries are computed, and how the rest is completed and checked."""
