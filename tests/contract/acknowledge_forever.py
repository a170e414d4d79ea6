"""A program that creates objects and items in a directory until it is killed.

Rule: each number is printed once both are acknowledged.
"""

from __future__ import annotations

import sys

from fenceline.adapters.sqlite.directory import open_directory
from fenceline.ports import ItemKey, Put


def main(directory: str, first: int) -> None:
    objects, items = open_directory(directory, now_ms=lambda: 0)
    for number in range(first, first + 1_000_000):
        objects.create(f"k/{number:09d}", number.to_bytes(4, "big") * (50_000 if number % 5 == 0 else 20), {})
        items.write([Put(ItemKey("p", f"{number:09d}"), {"n": number}, 1, None)])
        print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
