"""The floor that every room stands on: each helper here is written once and knows nothing of models or scores."""
