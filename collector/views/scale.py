"""How a number is scaled for reading, for both front ends; how it is then printed (digits, spaces) is theirs."""

UNKNOWN = "–"
COUNTS = ("", "k", "M", "G", "T", "P", "E")
SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def scaled(value: float, base: float, names: tuple[str, ...]) -> tuple[float, str]:
    """(value in the largest unit that keeps it below `base`, that unit's name)."""
    place = 0
    # 999.6 would print as "1000": scale by what will be shown, not by what is stored.
    while abs(value) >= base - 0.5 and place < len(names) - 1:
        value /= base
        place += 1
    return value, names[place]
