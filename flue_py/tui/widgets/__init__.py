"""What draws lines on a screen, and takes the keys that move in them."""
