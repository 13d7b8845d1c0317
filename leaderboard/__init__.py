"""From records to a leaderboard: statistics, tables, plots and the page. Imports nothing of ours and no torch."""
