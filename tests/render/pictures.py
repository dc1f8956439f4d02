"""Small pictures of each format that a report shows, three pixels wide and two high, and one of another format."""

from __future__ import annotations

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAYAAACddGYaAAAAEklEQVR4AWI6Y2z8H4aZGJAAAAAA///qnsSoAAAABklEQVQDAH+1BpjuJVuvAAAA"
    "AElFTkSuQmCC"
)
GIF = "R0lGODlhAwACAIAAAMwzMwAAACwAAAAAAwACAAACAoRRADs="
WEBP = "UklGRjAAAABXRUJQVlA4ICQAAABwAQCdASoDAAIAB0CWJaACdAFAAAD+2ibFwyGI/JL1J+VgiAA="
JPEG = (
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAFA3PEY8MlBGQUZaVVBfeMiCeG5uePWvuZHI//////////////////////////////////////////"
    "//////////2wBDAVVaWnhpeOuCguv/////////////////////////////////////////////////////////////////////////wAARCAAC"
    "AAMDASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAAAAL/xAAUEAEAAAAAAAAAAAAAAAAAAAAA/8QAFQEBAQAAAAAAAAAAAAAAAAAAAgP/"
    "xAAUEQEAAAAAAAAAAAAAAAAAAAAA/9oADAMBAAIRAxEAPwCABXf/2Q=="
)
SVG = "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciPjxzY3JpcHQ+d2luZG93LnB3bmVkPTE8L3NjcmlwdD48L3N2Zz4="
