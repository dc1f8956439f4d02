"""The statements that read what was cut out of payloads."""

from __future__ import annotations

from flue_py.core.kinds import ARTIFACT
from flue_py.store.sql.dialects import statement
from flue_py.store.sql.parts import WITH_SPANS
from flue_py.store.sql.read import Stretch
from flue_py.store.sql.takes import TreeEntry

# Of the entries on a stretch of a path. The bytes of a blob come with the first of its uses, and with no other: what
# numbers the uses has no bytes in it, so that none are sorted.
_USES = (
    WITH_SPANS + "SELECT n.depth, n.place, n.sha256, b.data FROM (SELECT a.depth, a.place, a.sha256,"
    " ROW_NUMBER() OVER (PARTITION BY a.sha256 ORDER BY a.depth, a.place) AS use FROM spans s JOIN attachments a"
    " ON a.tree_id = :tree_id AND a.lane_id = s.lane_id AND a.depth > s.low AND a.depth <= s.high"
    " AND a.depth > :low_depth WHERE s.high > :low_depth"
)
_THEIR_BYTES = (
    ") n LEFT JOIN blobs b ON n.use = 1 AND b.tree_id = :tree_id AND b.sha256 = n.sha256 ORDER BY n.depth, n.place"
)
OF_PATH = statement(Stretch, tuple[int, int, bytes, bytes | None])(_USES + _THEIR_BYTES)
# The same without those of artifacts, whose bytes no context has.
OF_CONTEXT = statement(Stretch, tuple[int, int, bytes, bytes | None])(
    _USES + " AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.tree_id = :tree_id AND e.lane_id = a.lane_id"
    f" AND e.depth = a.depth AND e.kind = '{ARTIFACT}')" + _THEIR_BYTES
)
OF_ENTRY = statement(TreeEntry, tuple[int, bytes])(
    "SELECT a.place, a.sha256 FROM entries e JOIN attachments a ON a.tree_id = e.tree_id AND a.lane_id = e.lane_id"
    " AND a.depth = e.depth WHERE e.tree_id = :tree_id AND e.id = :entry_id ORDER BY a.place"
)
