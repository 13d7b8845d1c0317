"""From argv to results: the matrix, the plan, the runner, the sweep and the command line."""
