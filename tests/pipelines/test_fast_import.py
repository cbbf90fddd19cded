"""Beam is imported whole, but for one connector, which can still be imported by its name."""

import subprocess
import sys
import textwrap
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_beam_is_imported_without_its_connector() -> None:
    program = """
        import gc, sys
        from pipelines.fast_import import importing_fast

        assert "apache_beam" not in sys.modules
        with importing_fast():
            assert not gc.isenabled()
            import apache_beam as beam
        assert gc.isenabled()
        assert gc.get_freeze_count() > 100_000
        assert "apache_beam.io.gcp.bigquery" not in sys.modules
        assert beam.io.ReadFromText and beam.io.ReadFromParquet

        from apache_beam.io.gcp.bigquery import WriteToBigQuery
        with importing_fast():
            assert gc.isenabled()
            import apache_beam.io.gcp.bigquery
        assert "apache_beam.io.gcp.bigquery" in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, cwd=REPOSITORY)


def test_an_import_that_fails_leaves_nothing_behind() -> None:
    program = """
        import gc, sys
        from pipelines.fast_import import importing_fast

        try:
            with importing_fast():
                import no_such_module
        except ImportError:
            pass
        assert gc.isenabled()
        assert "apache_beam.io.gcp.bigquery" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, cwd=REPOSITORY)
