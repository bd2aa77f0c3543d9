"""How many parts a sliding window has."""


def parts_of(window_s: int, slide_s: int) -> int:
    """window_s / slide_s. Raises ValueError when that is not a whole number of at least 3."""
    parts = window_s // slide_s
    if window_s % slide_s or parts < 3:
        raise ValueError(f"a window of {window_s} s does not have 3 or more slides of {slide_s} s")
    return parts
