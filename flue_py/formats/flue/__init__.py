"""The reference's stored session documents."""
