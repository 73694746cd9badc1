"""What the model does: its graph, where the batch lies, which parameters have a rule, and what a pass takes."""
