"""The real runner: a Llama-family decoder in torch over a paged cache. Knows plans, not how they are decided."""
