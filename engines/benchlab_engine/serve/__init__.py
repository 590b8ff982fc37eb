"""The engine behind HTTP. Knows the wire and the engine's door; the runner is picked at the command line."""
