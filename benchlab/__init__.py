"""benchlab: an LLM-inference benchmark lab whose numbers can be believed."""

__version__ = "0.1.0"
