"""What the API shows and takes, as pydantic models."""
