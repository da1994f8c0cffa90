"""The numbered Avro files of a project, and the codec made of them.

values          one value: its Python or JSON form -> what Avro writes
shapes          a type as the function that checks and lowers its values
definitions     an Avro file -> its shape
catalog         all files of a project
codec           events <-> wire bytes; the only user of fastavro
compatibility   does every version read what older ones wrote
lockfile        which files may not change any more
checking        both of these, of a folder
"""

from stream.schemas.catalog import Schema, SchemaCatalog
from stream.schemas.codec import AvroCodec, DecodeError
from stream.schemas.values import from_json, to_json

__all__ = ["AvroCodec", "DecodeError", "Schema", "SchemaCatalog", "from_json", "to_json"]
