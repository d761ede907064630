"""One file a table or figure, each re-created by one command."""
