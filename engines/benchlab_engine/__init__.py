"""The bundled reference engine: paged KV cache, continuous batching, real and small enough to read."""
