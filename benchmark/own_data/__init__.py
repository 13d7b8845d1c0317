"""From a file of the user's own to an answer in sentences: look, guess, run a small board, say what it shows."""
