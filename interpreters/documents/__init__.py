"""Document stores: SQLite, or memory."""
