"""What the studies of uncertainty maps share: ensembles, pictures that they doubt, maps as they are finished, tests."""
