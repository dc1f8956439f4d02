"""${message}

Revision: ${up_revision}
Follows: ${down_revision | comma,n}
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """History is never thrown away: restore the backup that was made before the upgrade."""
    raise NotImplementedError("downgrade by restoring the backup made before the upgrade")
