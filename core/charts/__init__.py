"""CHART_EXPORT: requests from templates, accounts and limits, naming, manifest, and the program."""
