"""The groups of a project: every module in consumers/ has one `group`. The engine meets the application only here."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from stream.errors import GroupError, ProjectImportError
from stream.groups import ConsumerGroup, nearest, suggestion
from stream.project import Project

PACKAGE = "consumers"


def discover(project: Project) -> dict[str, ConsumerGroup]:
    """Group name -> group, of every file in consumers/ whose name does not start with `_`.

    The project folder becomes importable (as `consumers.<module>`, and whatever lies beside it); consumers/ itself
    never, so `consumers/email.py` hides no standard module. Raises ProjectImportError with its traceback for a
    module that does not import, GroupError for one without a group, a group declared wrongly, or a name used twice.
    """
    _make_importable(project.root)
    groups: dict[str, ConsumerGroup] = {}
    for file in sorted(project.consumers.glob("[!_.]*.py")):
        group = getattr(_load(file), "group", None)
        if not isinstance(group, ConsumerGroup):
            found = "nothing of that name" if group is None else type(group).__name__
            raise GroupError(
                f"{file}: expected `group = ConsumerGroup(...)`, got {found}",
                hint=f"mv {file} {file.with_name('_' + file.name)}   (if it holds no group)",
            )
        if group.name in groups:
            raise GroupError(f"{file}: group {group.name!r} is declared in {groups[group.name].path} already")
        try:
            group.check(project)
        except GroupError as error:
            raise GroupError(f"{file}: {error.message}", hint=error.hint) from None
        group.path = file
        groups[group.name] = group
    return groups


def select(groups: dict[str, ConsumerGroup], names: Iterable[str]) -> list[ConsumerGroup]:
    """The groups of these names; raises GroupError with the names there are, also where none is asked for."""
    chosen = []
    for name in dict.fromkeys(names):
        if name not in groups:
            raise unknown_group(name, groups, "stream consume --group")
        chosen.append(groups[name])
    if not chosen:
        first = f"stream consume --group {min(groups)}" if groups else None
        raise GroupError(f"no group is named; groups: {_names(groups)}", hint=first)
    return chosen


def unknown_group(name: str, known: Iterable[str], command: str) -> GroupError:
    """The error that names the groups there are, and the command with the one that is meant, or the first."""
    names = sorted(known)
    near = nearest(name, names)
    return GroupError(
        f"unknown group {name!r}{suggestion(name, names)}" + (f" (groups: {_names(names)})" if near else ""),
        hint=f"{command} {near or names[0]}" if names else None,
    )


def _names(known: Iterable[str]) -> str:
    return ", ".join(sorted(known)) or "none, as consumers/ has no file that declares one"


def _make_importable(root: Path) -> None:
    """Let `consumers.x` mean this project's: the package of another project, loaded before, is forgotten."""
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    package = sys.modules.get(PACKAGE)
    if package is None or list(package.__path__) != [str(root / PACKAGE)]:
        for name in [name for name in sys.modules if name == PACKAGE or name.startswith(PACKAGE + ".")]:
            del sys.modules[name]
        package = ModuleType(PACKAGE)
        package.__path__ = [str(root / PACKAGE)]
        sys.modules[PACKAGE] = package


def _load(file: Path) -> ModuleType:
    name = f"{PACKAGE}.{file.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None  # a .py file has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except GroupError as error:
        del sys.modules[name]
        raise GroupError(f"{file}: {error.message}", hint=error.hint) from None
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ProjectImportError(
            f"{file} does not import:\n{_traceback(error)}",
            hint="stream migrate --check   (once it is mended)",
        ) from None
    return module


def _traceback(error: BaseException) -> str:
    """Without the frames of this module and of importlib: the first is the user's own."""
    frames = error.__traceback__
    while frames is not None and (
        "importlib" in frames.tb_frame.f_code.co_filename or frames.tb_frame.f_code is _load.__code__
    ):
        frames = frames.tb_next
    return "".join(traceback.format_exception(error.with_traceback(frames))).rstrip()
