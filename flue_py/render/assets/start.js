// Puts the page together.

const sessions = data.sessions;
const view = { session: undefined, number: -1 };
const tree = new Tree(byId("tree-box"), byId("tree"), (at) => choose(at));
const map = new BranchMap(byId("map"), (at) => choose(at, { reveal: true }));
const reading = new Reading((at) => {
  choose(at, { reveal: true });
  // What was clicked is gone with the list it was in.
  byId(`tab-${reading.tab}`).focus();
});

function choose(at, { reveal = false } = {}) {
  reading.show(view.session, at);
  tree.mark(at, reading.path, reading.context);
  map.select(reading.path);
  if (reveal && at !== undefined) tree.reveal(at);
  const leaves = byId("leaves");
  leaves.value = view.session.leaves.includes(at) ? String(at) : "";
}

function showSession(place) {
  view.number = place;
  view.session = sessions[place].children ? sessions[place] : prepare(sessions[place]);
  const session = view.session;
  [...byId("sessions").querySelectorAll("button")].forEach((button, each) =>
    button.setAttribute("aria-current", String(each === place)));
  byId("facts").replaceChildren(...factList(session.facts).childNodes);
  byId("tree").setAttribute("aria-label", `Entries of ${session.name}`);
  drawTiles(session);
  drawLeaves(session);
  tree.show(session);
  map.show(session);
  choose(session.leaf ?? undefined, { reveal: true });
}

function drawTiles(session) {
  const context = session.leaf === null ? [] : contextOf(session, session.leaf);
  const turns = session.entries.filter((entry) => entry.kind === "message" && entry.role === "user").length;
  const tiles = [
    ["Stored", number(session.entries.length), `${session.entries.length === 1 ? "entry" : "entries"}, ${counted(turns, "turn")}`],
    ["Branches", number(session.leaves.length), session.leaves.length === 1 ? "one straight line" : "ends in the tree"],
    ["The model sees", number(context.length), session.counted ? `messages, ${short(tokensOf(session, context))} tokens` : "messages at the leaf"],
    ["Cost", data.models.total.cost ?? "—", moneyNote()],
  ];
  byId("tiles").replaceChildren(...tiles.map(([name, value, note]) => make("li", {},
    make("span", { class: "tile-name", text: name }),
    make("span", { class: "tile-value", text: value }),
    make("span", { class: "muted", text: note }))));
}

function moneyNote() {
  const { calls, unpriced } = data.models.total;
  if (!calls) return "no call was paid for";
  return counted(calls, "call") + (unpriced ? `, ${number(unpriced)} unpriced` : "") + (sessions.length > 1 ? ", with tasks" : "");
}

const MOST_LEAVES = 500;

function drawLeaves(session) {
  const listed = session.leaves.slice(0, MOST_LEAVES);
  if (session.leaves.includes(session.leaf) && !listed.includes(session.leaf)) listed.unshift(session.leaf);
  const options = listed.map((at) => {
    const entry = session.entries[at];
    const text = `${at === session.leaf ? "● " : ""}${entry.id} · ${entry.line.slice(0, 40)}`;
    return make("option", { value: at, text });
  });
  byId("leaves").replaceChildren(make("option", { value: "", text: `${counted(session.leaves.length, "leaf", "leaves")}` }), ...options);
}

function drawSessions() {
  if (sessions.length < 2) return;
  const nav = byId("sessions");
  nav.hidden = false;
  nav.append(...sessions.map((session, place) => make("button", {
    type: "button", "aria-current": "false", on: { click: () => showSession(place) },
  }, make("bdi", { text: session.agent }), make("span", { class: "muted", text: place ? " task" : " this session" }))));
}

function find() {
  const wanted = byId("find").value.toLowerCase();
  const { entries } = view.session;
  if (!wanted) {
    byId("found").textContent = "";
    return;
  }
  const matches = (entry) => entry.id.toLowerCase().startsWith(wanted)
    || (entry.label ?? "").toLowerCase().includes(wanted)
    || entry.parts.some(([, text]) => text.toLowerCase().includes(wanted));
  const from = reading.at ?? -1;
  for (let step = 1; step <= entries.length; step += 1) {
    const at = (from + step) % entries.length;
    if (matches(entries[at])) {
      byId("found").textContent = at <= from ? "from the start" : "";
      choose(at, { reveal: true });
      return;
    }
  }
  byId("found").textContent = "not found";
}

const THEMES = ["auto", "light", "dark"];

function startTheme(chart) {
  const button = byId("theme");
  const root = document.documentElement;
  const set = (theme) => {
    root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    chart.draw();
  };
  button.addEventListener("click", () => set(THEMES[(THEMES.indexOf(root.dataset.theme) + 1) % THEMES.length]));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart.draw());
  set("auto");
}

byId("title").textContent = data.title;
byId("made").textContent = data.made ? `Made ${data.made} by flue_py.` : "Made by flue_py.";
byId("tree-legend").append(
  make("span", { class: "key seen" }), "in the context ",
  make("span", { class: "key" }), "stored only");
byId("leaves").addEventListener("change", (event) => event.target.value && choose(Number(event.target.value), { reveal: true }));
byId("find").addEventListener("keydown", (event) => {
  if (event.key === "Enter") find();
});
drawSessions();
drawMoney();
showSession(0);
startTheme(new GrowthChart((place, at) => {
  if (place !== view.number) showSession(place);
  choose(at, { reveal: true });
}));
