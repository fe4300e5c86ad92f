"""Several runs' curves side by side: python -m ssrl.report LABEL=RUN_FOLDER … --out curves.svg"""

from __future__ import annotations

import argparse
from pathlib import Path

from ssrl.report.curves import compare


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ssrl.report", description="Draw the curves of several runs side by side.")
    parser.add_argument("runs", nargs="+", metavar="LABEL=RUN_FOLDER")
    parser.add_argument("--out", type=Path, default=Path("curves.svg"), help="an .svg or .html file (default: curves.svg)")
    arguments = parser.parse_args()
    pairs = [word.partition("=") for word in arguments.runs]
    if bad := [label for label, equals, path in pairs if not equals or not Path(path).is_dir()]:
        parser.error(f"{bad[0]}: each run is written LABEL=RUN_FOLDER, with a folder that exists")
    print(compare({label: Path(path) for label, _, path in pairs}, arguments.out))


if __name__ == "__main__":
    main()
