"""Where rows come from: wheels, folders, files, hub tables, and what is read out of them."""
