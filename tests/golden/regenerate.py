"""Write `shards.json` anew: `python -m tests.golden.regenerate`, which `make golden` runs.

Only after a change of the shards' bytes that was meant.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.golden.datasets import CONFIGS, SHARDS_PATH, build_golden_dataset


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shards = {name: build_golden_dataset(name, Path(folder) / name) for name in CONFIGS}
    SHARDS_PATH.write_text(json.dumps(shards, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"wrote {sum(map(len, shards.values()))} hashes to {SHARDS_PATH}")


if __name__ == "__main__":
    main()
