"""Object stores: a folder, Cloud Storage, or memory."""
