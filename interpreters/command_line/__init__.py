"""What people type and see: commands, their input, and what they show on a terminal."""
