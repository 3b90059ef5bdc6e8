"""Fractional GPUs: the C hook, the simulated driver, and what the platform needs to use them. Imports no Django."""
