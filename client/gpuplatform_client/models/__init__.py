"""What the API shows and takes, as frozen dataclasses."""
