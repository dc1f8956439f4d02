// The list of sessions on its server: it follows what happens, has more when asked, and looks for words in all of them.

const hits = make("section", { class: "card", "aria-label": "Found in all sessions", hidden: true });
const more = make("button", { type: "button", text: "More sessions" });
byId("sessions").after(more);
byId("tiles").after(hits, byId("sessions").closest("section"));
byId("sessions").classList.add("all");
let cursor = data.more;
let added = [];

function redraw() {
  const focused = document.activeElement?.getAttribute("href");
  const group = document.activeElement?.closest(".group button")?.dataset.project;
  data.sessions = [...newest, ...added.filter(({ id }) => !newest.some((session) => session.id === id))];
  more.hidden = !cursor;
  drawFilters();
  drawSessions();
  drawTiles();
  drawDamaged();
  if (group !== undefined) focusGroup(group);
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

function followList() {
  const path = `/page/follow?after=${encodeURIComponent(data.version)}`;
  const events = follow(path, byId("made"), () => ask("/page/sums").catch(tellError).then(followList));
  events.onmessage = ({ data: text, lastEventId }) => {
    const fresh = JSON.parse(text);
    [newest, data.damaged, data.version] = [fresh.sessions, fresh.damaged, lastEventId];
    // Nothing was read on yet.
    if (!added.length) cursor = fresh.more;
    redraw();
    addUp();
  };
}

const SUMS = ["day", "month", "project", "agent", "model"];
byId("by").replaceChildren(...SUMS.map((name) => make("option", { value: name, text: name })));
byId("by").addEventListener("change", addUp);

async function addUp() {
  const name = byId("by").value;
  try {
    const { sums, total } = await ask(`/page/sums?by=${name}`);
    data.sums[name] = sums;
    data.total = total;
    drawSums();
    drawTiles();
  } catch (error) {
    tellError(error);
  }
}

// -- looking for words in all sessions -------------------------------------------------------------------------------

async function search(words) {
  hits.hidden = !words;
  if (!words) return;
  hits.replaceChildren(make("p", { class: "muted", text: "Looking…" }));
  try {
    const found = await ask(`/v1/search?limit=50&words=${encodeURIComponent(words)}`);
    const rows = found.hits.map((hit) => make("li", {},
      make("a", { href: `/sessions/${segmentOf(hit.sessionId)}#${encodeURIComponent(hit.entryId)}`, dir: "auto", text: hit.sessionName }),
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
  const links = [...document.querySelectorAll("main section:not([hidden]) :is(a, .group button)")];
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
addUp();
followList();
