"""What is asked of the endpoint: items, files of items, and text made to a length. Knows nothing of when or how."""
