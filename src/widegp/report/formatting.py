"""Numbers and names as a reader likes them."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LONGEST_NAME = 48
DASH = "–"


def number(x: float | None, digits: int = 3) -> str:
    """x to ``digits`` significant digits: 1,230; 0.0123; 4.5 × 10⁻⁷; a dash for what is not known."""
    if x is None or math.isnan(x):
        return DASH
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    if x == 0:
        return "0"
    mantissa, exponent = f"{x:.{digits - 1}e}".split("e")
    power = int(exponent)
    if not -4 <= power < 7:
        return f"{mantissa} × 10{str(power).translate(SUPERSCRIPTS)}".replace("-", "−")
    return f"{float(f'{mantissa}e{power}'):,.{max(0, digits - 1 - power)}f}".replace("-", "−")


def exact(x: float) -> str:
    """A value of the table as it stands there, to six digits, a whole number to all: 2018, not 2,020."""
    shown = f"{x:.0f}" if x == round(x, 0) and abs(x) < 1e10 else f"{x:.6g}"
    return shown.replace("-", "−")


def moment(when: object) -> str:
    """An ISO time to the minute, 2026-01-31 08:58 UTC; what is none stays as it is."""
    try:
        time = datetime.fromisoformat(str(when))
    except ValueError:
        return str(when)
    zone = "" if time.tzinfo is None else " UTC"
    return f"{time.astimezone(UTC) if zone else time:%Y-%m-%d %H:%M}{zone}"


def percent(share: float | None, decimals: int = 0) -> str:
    """A share in per cent; one that is not quite 1 is never rounded up to 100%."""
    if share is None:
        return DASH
    smallest = 10.0**-decimals
    if 0 < 100 * share < smallest / 2:
        return f"< {smallest:g}%"
    while 0.5 < share < 1 and round(100 * share, decimals) >= 100 and decimals < 4:
        decimals += 1
    if share == 1:
        return "100%"
    return f"{100 * share:.{decimals}f}%".replace("-", "−")


def share_words(item: Mapping[str, Any], key: str) -> str:
    """A share with its standard error where there is one, "6.4 ± 1.2%", else in per cent."""
    value, se = item.get(key), item.get(f"{key}_se")
    if value is None or se is None or key != "importance":
        return percent(value, 1)
    shown = f"{100 * value:.1f}".replace("-0.0", "0.0").replace("-", "−")
    return f"{shown} ± {100 * se:.1f}%"


def seconds(t: float | None) -> str:
    """4.2 ms, 7.1 s, 15 s, 3 min 20 s, 2 h 5 min."""
    if t is None:
        return DASH
    if t < 1:
        return f"{number(1000 * t, 2)} ms"
    if t < 90:
        return f"{number(t, 2)} s"
    minutes, rest = divmod(round(t), 60)
    return f"{minutes} min {rest} s" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def memory(size: float | None) -> str:
    """Bytes as MiB or GiB."""
    if size is None:
        return DASH
    return f"{number(size / 2**20)} MiB" if size < 2**30 else f"{number(size / 2**30)} GiB"


def clean(name: object) -> str:
    """A user's text on one line, without control characters (nor those that turn the writing round)."""
    text = " ".join(str(name).split())
    return "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co")) or "(no name)"


def short(name: object, longest: int = LONGEST_NAME) -> str:
    """`clean`, cut in the middle to ``longest`` characters: names often differ at their ends."""
    text = clean(name)
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def held_with_chance(row: Mapping[str, Any]) -> str:
    """The coverage of a row of the summary with its range of chance: 85% (93–97)."""
    return f"{percent(row['held'])} ({100 * row['low']:.0f}–{100 * row['high']:.0f})"


def part_range(part: Mapping[str, Any]) -> str:
    """The predictions of a part of the rows: below 1,180; 1,180 to 4,360; above 4,360."""
    if part["k"] == 0:
        return f"below {number(part['end'])}"
    start = number(part["start"])
    return f"above {start}" if part["k"] == part["of"] - 1 else f"{start} to {number(part['end'])}"


def listed(names: list[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def plain(value: Any) -> Any:
    """Arrays, tuples, mappings and numbers as JSON has them; what is not finite becomes None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    return str(value)
