"""Models that answer at every position: which pixels are foreign or wrong, and what a language model is unsure of."""
