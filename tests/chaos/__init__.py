"""The fault campaign: real processes, struck at random, must bring runs with known answers to the right end."""
