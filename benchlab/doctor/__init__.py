"""The doctor: how fast and how exact this client is on this host, and whether an endpoint keeps the wire contract."""
