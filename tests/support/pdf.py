"""Reading a PDF as far as tests need it."""

import re
import zlib


def text_of(document: bytes) -> str:
    """What a PDF with compressed content streams and a core font prints, line by line."""
    pages = [zlib.decompress(page) for page in re.findall(rb"stream\n(.*?)\nendstream", document, re.S)]
    return b"\n".join(re.findall(rb"\((.*?)\) Tj", b"\n".join(pages), re.S)).decode("cp1252")
