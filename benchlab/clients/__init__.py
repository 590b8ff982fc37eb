"""Talking to endpoints: one seam (`base.Client`), a byte-exact SSE parser, the wire dialects, and the transport.

Clients know the wire and nothing of metrics. The transport alone decides what time a chunk carries.
"""
