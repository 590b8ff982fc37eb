"""Loads on the bundled engine's own core in virtual time: the one room of benchlab that imports the engine."""
