"""Commands that launch, watch and change sessions."""
