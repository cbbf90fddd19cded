"""What a quickstart has done so far: `quickstart.json`, written anew after each stage.

In: the settings of a quickstart and the results of its stages. Out: the results of finished stages, for the
run that goes on after an interruption and for the summary. A folder that was made with other settings is
refused.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from schemas.errors import UsageError
from workflows.quickstart.whole_file import write_whole

RECORD_NAME = "quickstart.json"
STAGE_FOLDERS = ("text", "tokenizer", "corpus", "dataset", "run")


class QuickstartRecord:
    """The settings and the finished stages of a quickstart folder."""

    def __init__(self, folder: Path, settings: dict[str, Any], stages: dict[str, Any]) -> None:
        self.folder = folder
        self.stages = stages
        self._settings = settings

    @classmethod
    def open(cls, folder: Path, settings: dict[str, Any], *, overwrite: bool) -> QuickstartRecord:
        """Begin a quickstart in a folder, or go on with the one in it.

        Args:
            folder: made if it isn't there.
            settings: what decides the result; JSON values.
            overwrite: throw away what a quickstart left there.

        Raises:
            UsageError: the folder holds a quickstart of other settings, or something else under a name
            needed.
        """
        path = folder / RECORD_NAME
        if overwrite and path.is_file():
            for name in STAGE_FOLDERS:
                shutil.rmtree(folder / name, ignore_errors=True)
            path.unlink()
        if not path.is_file():
            strange = [name for name in STAGE_FOLDERS if (folder / name).exists()]
            if strange:
                raise UsageError(
                    f"{folder / strange[0]} exists, but {folder} has no {RECORD_NAME} of a quickstart.\n"
                    f"Give another --output."
                )
            record = cls(folder, settings, {})
            record._write()
            return record
        found_settings, stages = _parse(path)
        differing = [
            f"{name.replace('_', '-')} {found_settings.get(name)} there, {settings.get(name)} now"
            for name in sorted(settings.keys() | found_settings.keys())
            if found_settings.get(name) != settings.get(name)
        ]
        if differing:
            raise UsageError(
                f"{folder} holds a quickstart of other settings: {'; '.join(differing)}.\n"
                f"Give another --output, or --overwrite to do it anew."
            )
        return cls(folder, settings, stages)

    def finish(self, stage: str, result: Any) -> None:
        """Keep the result of a stage."""
        self.stages[stage] = result
        self._write()

    def forget(self, *stages: str) -> None:
        """Drop results that no longer hold."""
        for stage in stages:
            self.stages.pop(stage, None)
        self._write()

    def _write(self) -> None:
        content = {"settings": self._settings, "stages": self.stages}
        with write_whole(self.folder / RECORD_NAME) as stream:
            stream.write((json.dumps(content, indent=1) + "\n").encode())


def _parse(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        settings, stages = content["settings"], content["stages"]
        if not isinstance(settings, dict) or not isinstance(stages, dict):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        raise UsageError(
            f"{path} is no record of a quickstart.\nGive another --output, or --overwrite to do it anew."
        ) from None
    return settings, stages
