"""Studies: small experiments that explain a method, apart from the leaderboard. Each has `add_arguments` and `run`."""
