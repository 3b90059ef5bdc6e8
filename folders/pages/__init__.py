"""Pages of data folders in the browser."""
