"""Studies with a program of their own, one file a study."""
