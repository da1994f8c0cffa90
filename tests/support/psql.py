"""The real psql, as a shop in any language has it."""

from __future__ import annotations

import subprocess

from stream.stack import wheels


def psql(url: str, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script, to its end whatever fails; a variable is used as :'name'."""
    settings = [word for name, value in variables.items() for word in ("-v", f"{name}={value}")]
    return subprocess.run(
        [
            str(wheels.postgres_install() / "bin" / "psql"),
            url,
            "--no-psqlrc",
            "--tuples-only",
            "--no-align",
            "--quiet",
            *settings,
        ],
        input=script,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        timeout=30,
        check=False,
    )
