"""What a worker does as root on its host: directly where it is root, else through a helper container. No Django."""
