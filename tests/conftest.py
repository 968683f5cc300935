"""Set before anything imports torch: OpenMP threads that sleep at a barrier, and no model hub."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
