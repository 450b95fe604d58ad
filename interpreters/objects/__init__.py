"""Object stores: a folder, or memory."""
