"""Fuzzing, guided by coverage, of what strangers, tenants and hosts send to Python code (docs/adr/0117).

A target is a public function of a module of `targets`: it gives bytes to a real parser, and raises unless the parser
refuses them by its own error, or returns what it promises. `corpus/MODULE.FUNCTION/` keeps its inputs: a few that reach
far, and each one that has broken something.
"""
