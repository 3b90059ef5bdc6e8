"""How many replicas to launch and which to drain: of a rollout, a change of their number, or neither. Pure."""
