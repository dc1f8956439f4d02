// The list of all sessions: filters, order, and what they cost. Each session has a page of its own.

const ALL_COLUMNS = [
  { name: "Last active", of: (session) => session.active, cell: (session) => session.active },
  { name: "Session", of: (session) => session.name.toLowerCase(), cell: link },
  { name: "Program", of: (session) => session.program, cell: (session) => session.program || "—" },
  { name: "Model", of: (session) => session.model, cell: (session) => session.model || "—" },
  { name: "Messages", of: (session) => session.messages, cell: (session) => number(session.messages), isNumber: true },
  { name: "Tokens", of: (session) => session.tokens ?? -1, cell: (session) => known(session.tokens), isNumber: true },
  { name: "Cost", of: (session) => (moneyText(session.paid) === "—" ? -1 : session.paid[0]), cell: (session) => moneyText(session.paid), isNumber: true },
];
// The projects whose sessions are shown, or folded if somebody looks for some of them.
const opened = new Set(data.sessions.slice(0, 1).map(({ project }) => project));
const folded = new Set();
const FILTERS = ["program", "project", "model"];
// What no session has is no column.
const COLUMNS = ALL_COLUMNS.filter(({ name }) =>
  !FILTERS.includes(name.toLowerCase()) || data.sessions.some((session) => session[name.toLowerCase()]));
let order = { column: 0, isDown: true };

function link(session) {
  const note = session.kind === "fork" ? " (fork)" : "";
  return make("a", { href: session.href, text: session.name + note, title: session.first, dir: "auto" });
}

function shownSessions() {
  const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  const chosen = FILTERS.map((name) => [name, byId(name).value]).filter(([, value]) => value !== "");
  const sessions = data.sessions.filter((session) => {
    const text = [session.name, session.first, session.program, session.project, session.model, session.id].join("\n").toLowerCase();
    return words.every((word) => text.includes(word)) && chosen.every(([name, value]) => (session[name] || "—") === value);
  });
  const { of } = COLUMNS[order.column];
  const compare = (one, other) => (of(one) < of(other) ? -1 : of(one) > of(other) ? 1 : 0);
  sessions.sort((one, other) => (order.isDown ? compare(other, one) : compare(one, other)));
  return sessions;
}

function drawSessions() {
  const sessions = shownSessions();
  const sum = sumPaid(sessions);
  byId("found").textContent = `${counted(sessions.length, "session")} of ${number(data.sessions.length)}${data.more ? " listed" : ""}, ${moneyText(sum)}`;
  const head = make("tr", {}, ...COLUMNS.map((column, place) => {
    const sort = place === order.column ? (order.isDown ? "descending" : "ascending") : "none";
    const button = make("button", { type: "button", class: "link", text: column.name, on: { click: () => sortBy(place) } });
    return make("th", { scope: "col", class: column.isNumber ? "numeric" : null, "aria-sort": sort }, button);
  }));
  const groups = Map.groupBy(sessions, ({ project }) => project);
  const isOne = groups.size < 2;
  const bodies = [...groups].map(([project, some]) => make("tbody", {},
    ...(isOne ? [] : [groupRow(project, some)]), ...(isOne || isOpen(project) ? some.map(sessionRow) : [])));
  byId("sessions").replaceChildren(make("table", {}, make("thead", {}, head), ...bodies));
}

function sessionRow(session) {
  return make("tr", { class: "session" }, ...COLUMNS.map((column, place) => make(place === 1 ? "th" : "td",
    { class: column.isNumber ? "numeric" : null, scope: place === 1 ? "row" : null }, column.cell(session))));
}

function isLookedFor() {
  return byId("find").value.trim() !== "" || FILTERS.some((name) => byId(name).value !== "");
}

function isOpen(project) {
  return isLookedFor() ? !folded.has(project) : opened.has(project);
}

// The sums of a project, of its sessions that are listed.
function groupRow(project, sessions) {
  const latest = sessions.reduce((last, { active }) => (active > last ? active : last), "");
  const button = make("button", {
    type: "button", class: "link", "aria-expanded": String(isOpen(project)), "data-project": project, on: { click: () => toggle(project) },
  }, make("bdi", { text: project || "no project" }), make("span", { class: "muted", text: ` ${counted(sessions.length, "session")}` }));
  const tokens = sessions.map((session) => session.tokens).filter((count) => count !== null);
  const sum = (counts) => counts.reduce((total, count) => total + count, 0);
  const cells = {
    "Last active": latest, Session: button, Messages: number(sum(sessions.map(({ messages }) => messages))),
    Tokens: tokens.length ? number(sum(tokens)) + (tokens.length < sessions.length ? " + ?" : "") : "—",
    Cost: moneyText(sumPaid(sessions)),
  };
  return make("tr", { class: "group" }, ...COLUMNS.map(({ name, isNumber }) =>
    make(name === "Session" ? "th" : "td", { class: isNumber ? "numeric" : null, scope: name === "Session" ? "rowgroup" : null }, cells[name])));
}

function toggle(project) {
  const set = isLookedFor() ? folded : opened;
  if (!set.delete(project)) set.add(project);
  drawSessions();
  focusGroup(project);
}

function focusGroup(project) {
  [...byId("sessions").querySelectorAll(".group button")].find((button) => button.dataset.project === project)?.focus();
}

function sortBy(place) {
  const isText = !COLUMNS[place].isNumber && place > 0;
  order = { column: place, isDown: order.column === place ? !order.isDown : !isText };
  drawSessions();
  byId("sessions").querySelectorAll("th button")[place].focus();
}

function drawSums() {
  const name = byId("by").value;
  const rows = data.sums[name] ?? [];
  const most = Math.max(1, ...rows.map((row) => row.paid[0]));
  const headings = [name, ...["Calls", "Input", "Output", "Cache read", "Cache write", "Cost"].map(numeric), ""];
  const lines = rows.map((row) => [
    row.name || "—", numeric(number(row.paid[1])), ...row.usage.map((count) => numeric(known(count))), numeric(billText(row.paid)), "",
  ]);
  const drawn = table(headings, lines);
  drawn.querySelectorAll("tbody tr").forEach((line, place) => {
    const bar = make("meter", { min: "0", max: String(most), "aria-hidden": "true" });
    bar.value = rows[place].paid[0];
    line.lastElementChild.append(bar);
  });
  byId("sums").replaceChildren(drawn);
}

function drawTiles() {
  const tile = (value, text) => make("li", {}, make("span", { class: "tile-value", text: value }), make("span", { class: "muted", text }));
  const namesOf = (field) => new Set(data.sessions.map((session) => session[field]).filter(Boolean)).size;
  const [count, what] = namesOf("program") ? [namesOf("program"), "program"] : [namesOf("project"), "project"];
  byId("tiles").replaceChildren(
    tile(number(data.sessions.length), data.sessions.length === 1 ? "session" : "sessions"),
    tile(number(count), count === 1 ? what : `${what}s`),
    tile(data.total ? short(data.total.paid[1]) : "…", "paid calls"),
    tile(data.total ? moneyText(data.total.paid) : "…", "paid in all"),
  );
}

function drawDamaged() {
  byId("damaged").textContent = data.damaged.map((id) => `${id}: damaged, and has no page`).join("\n");
}

function drawFilters() {
  for (const name of FILTERS) {
    const values = [...new Set(data.sessions.map((session) => session[name] || "—"))].sort();
    const chosen = byId(name).value;
    byId(name).replaceChildren(make("option", { value: "", text: "all" }), ...values.map((value) => make("option", { value, text: value })));
    byId(name).value = values.includes(chosen) ? chosen : "";
    byId(name).closest(".field").hidden = values.length < 2;
  }
}

for (const name of FILTERS) byId(name).addEventListener("change", drawSessions);
drawFilters();
drawDamaged();
byId("by").replaceChildren(...Object.keys(data.sums).map((name) => make("option", { value: name, text: name })));
byId("by").addEventListener("change", drawSums);
byId("find").addEventListener("input", drawSessions);
byId("made").textContent = data.made ? `Made ${data.made}` : "Report";
if (data.unchecked) byId("made").textContent += " Unchecked: read without its key, and others may have changed it.";
drawTiles();
drawSums();
drawSessions();
