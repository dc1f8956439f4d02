// The list of sessions on its server: it follows what happens, has more when asked, and looks for words in all of them.

let etag;
const hits = make("section", { class: "card", "aria-label": "Found in all sessions", hidden: true });
const more = make("button", { type: "button", text: "More sessions" });
byId("sessions").after(more);
byId("tiles").after(hits, byId("sessions").closest("section"));
byId("sessions").classList.add("all");
let cursor = data.more;
let added = [];

function redraw() {
  const focused = document.activeElement?.getAttribute("href");
  data.sessions = [...newest, ...added.filter(({ id }) => !newest.some((session) => session.id === id))];
  more.hidden = !cursor;
  drawFilters();
  drawSessions();
  drawTiles();
  if (focused) [...byId("sessions").querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
}

let newest = data.sessions;

more.addEventListener("click", async () => {
  try {
    const page = await ask(`/page/sessions?cursor=${encodeURIComponent(cursor)}`);
    [cursor, added] = [page.more, [...added, ...page.sessions]];
    redraw();
  } catch (error) {
    tellError(error);
  }
});

async function follow() {
  try {
    const fresh = await ask("/page/sessions", { headers: etag ? { "If-None-Match": etag } : {} });
    if (fresh) {
      etag = fresh.etag;
      newest = fresh.sessions;
      redraw();
      await addUp();
    }
    byId("made").textContent = "live";
    untell();
  } catch (error) {
    byId("made").textContent = "not connected, trying again";
    if (!(error instanceof TypeError)) tellError(error);
  }
  setTimeout(follow, 3000);
}

const SUMS = ["day", "month", "project", "agent", "model"];
byId("by").replaceChildren(...SUMS.map((name) => make("option", { value: name, text: name })));
byId("by").addEventListener("change", addUp);

// What was paid, as the list of a report has it.
async function addUp() {
  const name = byId("by").value;
  const { rows, total } = await ask(`/v1/usage?groupBy=${name}`).catch((error) => (tellError(error), { rows: [] }));
  const sumOf = (row) => {
    const writes = [row.cacheWrite5m, row.cacheWrite1h];
    const written = writes.every((count) => count === null) ? null : writes[0] + writes[1];
    return {
      name: row[name], usage: [row.input, row.output, row.cacheRead, written],
      paid: [row.costPicodollars ?? 0, row.calls, row.unpricedCalls], unknown: row.unknownCalls,
    };
  };
  data.sums[name] = rows.map(sumOf);
  if (name === "day" || name === "month") data.sums[name].reverse();
  else data.sums[name].sort((one, other) => other.paid[0] - one.paid[0]);
  if (total) data.total = sumOf(total);
  drawSums();
  drawTiles();
}

// -- looking for words in all sessions -------------------------------------------------------------------------------

async function search(words) {
  hits.hidden = !words;
  if (!words) return;
  hits.replaceChildren(make("p", { class: "muted", text: "Looking…" }));
  try {
    const found = await ask(`/v1/search?limit=50&words=${encodeURIComponent(words)}`);
    const rows = found.hits.map((hit) => make("li", {},
      make("a", { href: `/sessions/${encodeURIComponent(hit.sessionId)}#${encodeURIComponent(hit.entryId)}`, dir: "auto", text: hit.sessionName }),
      " ", make("bdi", { class: "muted", text: hit.snippet })));
    hits.replaceChildren(make("h2", { text: `“${words}” in all sessions: ${counted(rows.length, "place")}${found.hasMore ? " and more" : ""}` }), make("ul", { class: "hits" }, ...rows));
    if (!rows.length) hits.append(make("p", { class: "muted", text: [...found.widen, ...found.suggestions].join(" ") }));
  } catch (error) {
    hits.hidden = true;
    tellError(error);
  }
}

byId("find").setAttribute("aria-keyshortcuts", "/");
byId("find").closest("label").after(make("button", { type: "button", text: "In all texts", on: { click: () => search(byId("find").value.trim()) } }));
byId("find").addEventListener("keydown", (event) => {
  if (event.key === "Enter") search(byId("find").value.trim());
  else if (event.key === "Escape") {
    byId("find").value = "";
    search("");
    drawSessions();
    step(0);
  }
});

// Goes through the links of the list by keys.
function step(by) {
  const links = [...document.querySelectorAll("main section:not([hidden]) a")];
  const at = links.indexOf(document.activeElement);
  links[Math.max(0, Math.min(links.length - 1, at < 0 ? 0 : at + by))]?.focus();
}

document.addEventListener("keydown", (event) => {
  const steps = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 };
  if (isTyping(event)) return;
  if (event.key === "/") byId("find").select();
  else if (event.key in steps) step(steps[event.key]);
  else return;
  event.preventDefault();
});

if (data.hasLogin) {
  document.querySelector(".top").append(make("form", { method: "post", action: "/login" }, make("button", { type: "submit", class: "quiet", text: "Log out" })));
}
redraw();
follow();
