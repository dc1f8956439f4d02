"""The text of documents, extracted in a process of its own: what a file makes its reader take is bounded there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import PurePath

from flue_py.context.document_texts import ExtractedText, check_document
from flue_py.core.limits import DEFAULT_LIMITS, Limits
from flue_py.errors import MissingExtra, UnreadableFile, shown

_COMMAND = (sys.executable, "-P", "-W", "ignore", "-m", "flue_py.context.document_texts")


def extract_text(data: bytes, name: str, *, limits: Limits = DEFAULT_LIMITS) -> ExtractedText:
    """Return the text of a document, whose kind is that of its name: ``.pdf``, ``.docx``, ``.pptx`` or ``.xlsx``.

    In the order of pages, slides or sheets, with a line for each that is not the first of a PDF. Cells of a row are
    parted by tabs. Formulas are what they came to when the file was saved. Pictures have no text here.

    It is read in a process of its own, which may take as much memory (on Linux) and time as the ``limits`` say. Raises
    `UnreadableFile` for one that is encrypted, damaged, too large, takes more than that, or has no text, such as a
    scan; `InvalidArgument` for a name with another ending, and `MissingExtra`. It blocks, for seconds where it is
    large.
    """
    check_document(data, name)
    memory, seconds = limits.extraction_bytes, limits.extraction_seconds
    asked = json.dumps({"name": name, "memory": memory, "seconds": seconds}).encode() + b"\n"
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(  # noqa: S603 - our own module, by our own Python
        _COMMAND,
        input=asked + data,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # A library of numbers would take address space for as many threads as there are processors.
        env={**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"},
        check=False,
    )
    called = shown(PurePath(name).name)
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise UnreadableFile(
            f"{called} takes more than {seconds:,} seconds to read; "
            "if you trust it, extract it with other limits (extraction_seconds)"
        )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {"memory": True}
    if "memory" in answer:
        raise UnreadableFile(
            f"{called} takes more than {memory:,} bytes of memory to read, or breaks its reader; "
            "if you trust it, extract it with other limits (extraction_bytes)"
        )
    if "missing" in answer:
        raise MissingExtra("documents", "the text of PDF, Word, PowerPoint and Excel files")
    if "unreadable" in answer:
        raise UnreadableFile(answer["unreadable"])
    return ExtractedText(answer["text"], tuple(answer["notes"]))
