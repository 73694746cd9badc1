"""The tables of the REGrad paper, one short declaration each."""
