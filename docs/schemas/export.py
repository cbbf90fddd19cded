"""Write the JSON Schemas of the manifests beside this file."""

import json
from pathlib import Path

from schemas.manifests import CorpusManifest, DatasetManifest, manifest_json_schema


def main() -> None:
    """Write `corpus.schema.json` and `dataset.schema.json`."""
    for name, kind in (("corpus", CorpusManifest), ("dataset", DatasetManifest)):
        path = Path(__file__).parent / f"{name}.schema.json"
        path.write_text(json.dumps(manifest_json_schema(kind), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
