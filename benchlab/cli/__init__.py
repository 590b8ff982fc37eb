"""The command line: one file a command, no logic. stdout is the result alone, everything else goes to stderr."""
