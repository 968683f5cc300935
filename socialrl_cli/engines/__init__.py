"""Where tokens come from, behind one Engine protocol."""
