"""The journal of a run, and its replay: what the program did then, and what it would do now."""
