"""Norms of per-input gradients in three normal forms, most of which are never written down."""
