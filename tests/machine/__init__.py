"""State machines that drive a store beside the model in memory, and compare all they tell."""
