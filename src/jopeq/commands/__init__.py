"""One file a command: parse, call one function of the library, print."""
