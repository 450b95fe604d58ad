"""LLM_REPORT: inputs, prompt assembly, structured output and its one repair, the report, the program."""
