"""A project folder: `schemas/` and `consumers/` below one root. The engine knows no other path."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from stream.errors import NoProject
from stream.schemas import AvroCodec, SchemaCatalog
from stream.topics import TopicCatalog


class Project:
    """What a project declares; read at first use and then kept. Raises SchemaError with file and path."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).resolve()
        if not (self.root / "schemas").is_dir():
            raise NoProject(self.root)

    @cached_property
    def schemas(self) -> SchemaCatalog:
        return SchemaCatalog.load(self.root / "schemas")

    @cached_property
    def topics(self) -> TopicCatalog:
        return TopicCatalog.load(self.root / "schemas" / "topics.toml", self.schemas.names())

    @cached_property
    def codec(self) -> AvroCodec:
        return AvroCodec(self.schemas)

    @property
    def consumers(self) -> Path:
        return self.root / "consumers"
