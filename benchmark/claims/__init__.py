"""Claims of the sources, one file each: a sentence, and the rule that decides it."""
