"""Questions beyond the paper, one short declaration each."""
