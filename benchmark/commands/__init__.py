"""The commands, one file each: NAME, HELP, EXAMPLE, add_arguments(parser), run(arguments) -> exit code."""
