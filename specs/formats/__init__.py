"""Job scripts with `#GP` and `#SBATCH` lines, and task files of SkyPilot and dstack, as documents of a spec file.

Used by pages.
"""
