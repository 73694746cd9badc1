"""The pipelines: what a person calls, readable from top to bottom."""
