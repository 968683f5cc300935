"""What `socialrl bench` measures, one file per measurement."""
