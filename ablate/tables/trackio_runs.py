"""Prints the runs of a project of trackio, each as a line of JSON.

trackio reads its folder from the environment once for each process, so this is a process of its own.
"""

from __future__ import annotations

import json
import sys

from ablate.processes import adopt_modules, keep_printing


def main() -> None:
    """Print the runs of the project that the one argument names."""
    adopt_modules()
    keep_printing()
    from trackio import Api
    from trackio.sqlite_storage import SQLiteStorage

    project = sys.argv[1]
    for run in Api().runs(project):
        rows = SQLiteStorage.get_logs(project, run.name, run_id=run.id)
        print(json.dumps({"run": run.name, "id": run.id, "config": run.config or {}, "rows": rows}, default=str))


if __name__ == "__main__":
    main()
