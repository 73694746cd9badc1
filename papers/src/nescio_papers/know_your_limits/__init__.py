"""What the studies of "Know your limits" (Ulmer and Cinà 2021) share: half-moons, models, doubts, regions, drawings."""
