"""Solve the designed channels that the package ships, write them, and print them as Markdown.

python tools/design_channels.py
"""

from __future__ import annotations

import json
from pathlib import Path

from jopeq.channel.design import SIGMA, solve_bound, solve_channel
from jopeq.channel.response import best_response
from jopeq.channel.tables import to_entry

TABLE = Path(__file__).parents[1] / "src" / "jopeq" / "data" / "channels.json"
EPSILONS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0)
LETTERS = (4, 8, 16, 32)


def main() -> None:
    """Takes hours: every channel is solved afresh."""
    channels, bounds = {}, {}
    print("| ε | letters | best response | ours (levels → letters) | lower bound | gain |")
    print("|---|---|---|---|---|---|")
    for epsilon in EPSILONS:
        bounds[repr(epsilon)] = bound = solve_bound(epsilon)
        for most in LETTERS:
            channel = solve_channel(epsilon, most)
            channels[f"{epsilon!r} {most}"] = to_entry(channel)
            ours = channel.gaussian_distortion()
            response = best_response(epsilon, most, sigma=SIGMA)
            theirs = response.gaussian_distortion()
            sizes = f"{channel.levels} → {channel.letters}"
            print(
                f"| {epsilon} | {most} | {theirs:.5f} ({response.letters}) | {ours:.5f} ({sizes}) "
                f"| {bound:.5f} | {1 - ours / theirs:.1%} |",
                flush=True,
            )
    table = {"bounds": bounds, "channels": channels}
    TABLE.write_text(json.dumps(table, separators=(",", ":")) + "\n", "ascii")


if __name__ == "__main__":
    main()
