"""Commands that this package adds to `nescio`, through the entry-point group `nescio.commands`."""
