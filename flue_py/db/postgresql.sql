CREATE TABLE attachments (
    tree_id BIGINT NOT NULL,
    lane_id BIGINT NOT NULL,
    depth BIGINT NOT NULL,
    place BIGINT NOT NULL,
    sha256 BYTEA NOT NULL,
    CONSTRAINT pk_attachments PRIMARY KEY (tree_id, lane_id, depth, place)
);

CREATE INDEX ix_attachments_sha256 ON attachments (tree_id, sha256);

CREATE TABLE blobs (
    tree_id BIGINT NOT NULL,
    sha256 BYTEA NOT NULL,
    size BIGINT NOT NULL,
    data BYTEA NOT NULL,
    CONSTRAINT pk_blobs PRIMARY KEY (tree_id, sha256)
);

CREATE TABLE budgets (
    budget_key BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    scope TEXT COLLATE "C" NOT NULL,
    covers TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C",
    unit TEXT COLLATE "C" NOT NULL,
    allowed BIGINT NOT NULL,
    spent BIGINT NOT NULL,
    reserved BIGINT NOT NULL,
    seeded BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    period TEXT COLLATE "C" DEFAULT '' NOT NULL,
    tz TEXT COLLATE "C" DEFAULT '' NOT NULL,
    CONSTRAINT pk_budgets PRIMARY KEY (budget_key),
    CONSTRAINT ck_budgets_covers CHECK (covers IN ('session', 'tasks', 'scope')),
    CONSTRAINT ck_budgets_unit CHECK (unit IN ('tokens', 'picodollars')),
    CONSTRAINT ck_budgets_session CHECK ((session_id IS NULL) = (covers = 'scope')),
    CONSTRAINT ck_budgets_period CHECK (period IN ('', 'day', 'week', 'month')),
    CONSTRAINT ck_budgets_tz CHECK ((period = '') = (tz = '')),
    CONSTRAINT uq_budgets_id UNIQUE (id),
    CONSTRAINT uq_budgets_session_id_covers_unit_period UNIQUE (session_id, covers, unit, period)
);

CREATE UNIQUE INDEX uq_budgets_scope ON budgets (scope, unit, period) WHERE session_id IS NULL;

CREATE TABLE documents (
    scope TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    space TEXT COLLATE "C" NOT NULL,
    project TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    source TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    chars BIGINT NOT NULL,
    digest BYTEA NOT NULL,
    body TEXT COLLATE "C" NOT NULL,
    seal BIGINT DEFAULT 0 NOT NULL,
    gap BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT pk_documents PRIMARY KEY (scope, kind, space, project, name),
    CONSTRAINT ck_documents_kind CHECK (kind IN ('memory', 'file'))
);

CREATE TABLE entries (
    tree_id BIGINT NOT NULL,
    lane_id BIGINT NOT NULL,
    depth BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    parent_id TEXT COLLATE "C",
    kind TEXT COLLATE "C" NOT NULL,
    role TEXT COLLATE "C",
    source TEXT COLLATE "C",
    session_key BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    ordinal BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    counted BIGINT NOT NULL,
    input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    cache_read_tokens BIGINT NOT NULL,
    cache_write_tokens BIGINT NOT NULL,
    total_tokens BIGINT NOT NULL,
    input_cost BIGINT NOT NULL,
    output_cost BIGINT NOT NULL,
    cache_read_cost BIGINT NOT NULL,
    cache_write_cost BIGINT NOT NULL,
    total_cost BIGINT NOT NULL,
    paid_calls BIGINT DEFAULT 0 NOT NULL,
    unpriced_calls BIGINT DEFAULT 0 NOT NULL,
    unknown_calls BIGINT DEFAULT 0 NOT NULL,
    paid_tokens BIGINT DEFAULT 0 NOT NULL,
    paid_cost BIGINT DEFAULT 0 NOT NULL,
    digest BYTEA NOT NULL,
    blob BYTEA,
    packed BYTEA,
    extra TEXT COLLATE "C",
    payload TEXT COLLATE "C",
    CONSTRAINT pk_entries PRIMARY KEY (tree_id, lane_id, depth),
    CONSTRAINT uq_entries_id_tree_id UNIQUE (id, tree_id),
    CONSTRAINT ck_entries_payload CHECK ((payload IS NOT NULL AND packed IS NULL AND blob IS NULL) OR (payload IS NULL AND packed IS NOT NULL AND blob IS NULL) OR (payload IS NULL AND packed IS NULL AND blob IS NOT NULL))
);

CREATE INDEX ix_entries_blob ON entries (tree_id, blob) WHERE blob IS NOT NULL;

CREATE INDEX ix_entries_compaction ON entries (tree_id, lane_id, depth) WHERE kind = 'compaction';

CREATE INDEX ix_entries_exclusion ON entries (tree_id, lane_id, depth) WHERE kind = 'exclusion';

CREATE INDEX ix_entries_setting ON entries (tree_id, lane_id, depth) WHERE kind IN ('model_change', 'thinking_level_change');

CREATE TABLE lanes (
    tree_id BIGINT NOT NULL,
    lane_id BIGINT NOT NULL,
    owner_key BIGINT NOT NULL,
    parent_lane BIGINT,
    fork_depth BIGINT NOT NULL,
    CONSTRAINT pk_lanes PRIMARY KEY (tree_id, lane_id),
    CONSTRAINT ck_lanes_root CHECK ((parent_lane IS NULL) = (fork_depth = -1))
);

CREATE INDEX ix_lanes_owner_key ON lanes (owner_key);

CREATE INDEX ix_lanes_parent ON lanes (tree_id, parent_lane, fork_depth);

CREATE TABLE ledger (
    scope TEXT COLLATE "C" NOT NULL,
    provider TEXT COLLATE "C" NOT NULL,
    call_id TEXT COLLATE "C",
    session_key BIGINT NOT NULL,
    tree_id BIGINT NOT NULL,
    entry_id TEXT COLLATE "C",
    purpose TEXT COLLATE "C" NOT NULL,
    model TEXT COLLATE "C" NOT NULL,
    input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    cache_read_tokens BIGINT NOT NULL,
    cache_write_5m_tokens BIGINT NOT NULL,
    cache_write_1h_tokens BIGINT NOT NULL,
    reasoning_tokens BIGINT NOT NULL,
    total_tokens BIGINT NOT NULL,
    cost BIGINT,
    price_source TEXT COLLATE "C",
    at BIGINT NOT NULL,
    outcome TEXT COLLATE "C",
    unknown BIGINT DEFAULT 0 NOT NULL,
    agent TEXT COLLATE "C",
    reported BIGINT DEFAULT 0 NOT NULL,
    number BIGINT GENERATED BY DEFAULT AS IDENTITY,
    CONSTRAINT pk_ledger PRIMARY KEY (number),
    CONSTRAINT ck_ledger_call CHECK (call_id IS NOT NULL OR entry_id IS NOT NULL)
);

CREATE INDEX ix_ledger_at ON ledger (at);

CREATE INDEX ix_ledger_session_key ON ledger (session_key);

CREATE UNIQUE INDEX uq_ledger_call_id ON ledger (scope, provider, call_id) WHERE call_id IS NOT NULL;

CREATE TABLE ledger_sessions (
    session_key BIGINT NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    tree_id BIGINT,
    task_of TEXT COLLATE "C",
    project TEXT COLLATE "C",
    seal BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT pk_ledger_sessions PRIMARY KEY (session_key),
    CONSTRAINT uq_ledger_sessions_session_id_session_key UNIQUE (session_id, session_key)
);

CREATE INDEX ix_ledger_sessions_tree_id ON ledger_sessions (tree_id);

CREATE TABLE sessions (
    session_key BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    tree_id BIGINT NOT NULL,
    scope TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C",
    title TEXT COLLATE "C",
    kind TEXT COLLATE "C" NOT NULL,
    task_depth BIGINT NOT NULL,
    forked_from_session TEXT COLLATE "C",
    forked_from_entry TEXT COLLATE "C",
    leaf TEXT COLLATE "C",
    revision BIGINT NOT NULL,
    metadata TEXT COLLATE "C" NOT NULL,
    cwd TEXT COLLATE "C",
    config_path TEXT COLLATE "C",
    completed_at BIGINT,
    trashed_at BIGINT,
    entry_count BIGINT NOT NULL,
    message_count BIGINT NOT NULL,
    first_message TEXT COLLATE "C",
    spent_tokens BIGINT NOT NULL,
    spent_cost BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    auto_title TEXT COLLATE "C",
    unpriced_calls BIGINT DEFAULT 0 NOT NULL,
    active_at BIGINT DEFAULT 0 NOT NULL,
    unknown_calls BIGINT DEFAULT 0 NOT NULL,
    active_slot BIGINT DEFAULT 0 NOT NULL,
    head BYTEA DEFAULT '' NOT NULL,
    log_seal BIGINT DEFAULT 0 NOT NULL,
    mark_seal BIGINT DEFAULT 0 NOT NULL,
    link_seal BIGINT DEFAULT 0 NOT NULL,
    call_seal BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT pk_sessions PRIMARY KEY (session_key),
    CONSTRAINT ck_sessions_kind CHECK (kind IN ('root', 'fork', 'task')),
    CONSTRAINT uq_sessions_id UNIQUE (id)
);

CREATE INDEX ix_sessions_active_slot ON sessions (active_slot, session_key);

CREATE INDEX ix_sessions_created_at ON sessions (created_at, session_key);

CREATE INDEX ix_sessions_scope_active_slot ON sessions (scope, active_slot, session_key);

CREATE INDEX ix_sessions_title ON sessions (substr(COALESCE(NULLIF(title, ''), NULLIF(auto_title, ''), ''), 1, 200), session_key);

CREATE INDEX ix_sessions_tree_id ON sessions (tree_id);

CREATE UNIQUE INDEX uq_sessions_scope_key ON sessions (scope, key) WHERE key IS NOT NULL AND trashed_at IS NULL;

CREATE TABLE leaf_moves (
    session_key BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    from_entry TEXT COLLATE "C",
    to_entry TEXT COLLATE "C",
    reason TEXT COLLATE "C" NOT NULL,
    undoes BIGINT,
    moved_by TEXT COLLATE "C",
    at BIGINT NOT NULL,
    why TEXT COLLATE "C",
    seal BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT pk_leaf_moves PRIMARY KEY (session_key, revision),
    CONSTRAINT fk_leaf_moves_session_key FOREIGN KEY(session_key) REFERENCES sessions (session_key) ON DELETE CASCADE
);

CREATE TABLE marks (
    session_key BIGINT NOT NULL,
    entry_id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    value TEXT COLLATE "C",
    at BIGINT NOT NULL,
    seal BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT pk_marks PRIMARY KEY (session_key, entry_id, kind),
    CONSTRAINT ck_marks_kind CHECK (kind IN ('label', 'pin', 'retracted')),
    CONSTRAINT fk_marks_session_key FOREIGN KEY(session_key) REFERENCES sessions (session_key) ON DELETE CASCADE
);

CREATE TABLE requests (
    session_key BIGINT NOT NULL,
    idempotency_key TEXT COLLATE "C" NOT NULL,
    operation TEXT COLLATE "C" NOT NULL,
    digest BYTEA NOT NULL,
    result TEXT COLLATE "C" NOT NULL,
    CONSTRAINT pk_requests PRIMARY KEY (session_key, idempotency_key),
    CONSTRAINT fk_requests_session_key FOREIGN KEY(session_key) REFERENCES sessions (session_key) ON DELETE CASCADE
);

CREATE TABLE reservations (
    reservation_id TEXT COLLATE "C" NOT NULL,
    budget_key BIGINT NOT NULL,
    session_id TEXT COLLATE "C",
    amount BIGINT NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    used BIGINT,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    settled_at BIGINT,
    CONSTRAINT pk_reservations PRIMARY KEY (reservation_id, budget_key),
    CONSTRAINT ck_reservations_state CHECK (state IN ('held', 'committed', 'released', 'expired')),
    CONSTRAINT fk_reservations_budget_key FOREIGN KEY(budget_key) REFERENCES budgets (budget_key) ON DELETE CASCADE
);

CREATE INDEX ix_reservations_held ON reservations (budget_key, expires_at) WHERE state = 'held';

CREATE TABLE session_edits (
    session_key BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    what TEXT COLLATE "C" NOT NULL,
    entry_id TEXT COLLATE "C",
    before TEXT COLLATE "C",
    after TEXT COLLATE "C",
    edited_by TEXT COLLATE "C",
    why TEXT COLLATE "C",
    at BIGINT NOT NULL,
    seal BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT pk_session_edits PRIMARY KEY (session_key, revision, what),
    CONSTRAINT fk_session_edits_session_key FOREIGN KEY(session_key) REFERENCES sessions (session_key) ON DELETE CASCADE
);

CREATE TABLE task_links (
    parent_key BIGINT NOT NULL,
    position BIGINT NOT NULL,
    task_id TEXT COLLATE "C" NOT NULL,
    child_id TEXT COLLATE "C" NOT NULL,
    entry_id TEXT COLLATE "C",
    status TEXT COLLATE "C",
    summary TEXT COLLATE "C",
    seal BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT pk_task_links PRIMARY KEY (parent_key, position),
    CONSTRAINT uq_task_links_parent_key_child_id UNIQUE (parent_key, child_id),
    CONSTRAINT fk_task_links_parent_key FOREIGN KEY(parent_key) REFERENCES sessions (session_key) ON DELETE CASCADE
);

CREATE INDEX ix_task_links_child_id ON task_links (child_id);

CREATE VIEW history AS
SELECT s.id AS created_by, e.id AS id, e.parent_id AS parent_id,
       e.depth AS depth, e.kind AS kind, e.role AS role, e.revision AS revision, e.created_at AS created_at,
       e.payload AS payload, e.tree_id AS tree_id
  FROM entries e LEFT JOIN sessions s ON s.session_key = e.session_key;

CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

INSERT INTO alembic_version (version_num) VALUES ('0003');

