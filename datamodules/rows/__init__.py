"""What is done to rows before they are a split: order, user splits, moments, words."""
