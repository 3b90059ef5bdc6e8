"""The platform at high speed: in-memory engines, a clock that is set, one thread, faults at every step.

The database is real, with its triggers and its commits. A seed is a story (`story.py`), told to a world (`world.py`)
whose processes die, are cut off and have wrong clocks; what must hold afterwards is in `verdict.py`.
"""
