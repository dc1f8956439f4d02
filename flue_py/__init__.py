"""flue_py."""
