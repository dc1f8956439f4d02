// Puts the page together.

const sessions = data.sessions;
sessions.forEach(unpack);
const view = { session: undefined, number: -1 };
const tree = new Tree(byId("tree-box"), byId("tree"), (at) => read(at));
const map = new BranchMap(byId("map"), (at) => read(at));
const pane = new Pane(() => tree.focus(tree.current));
const reading = new Reading((at) => {
  read(at);
  // What was clicked is gone with the list it was in.
  byId(`tab-${reading.tab}`).focus();
});
const find = new Find({ sessions, current: () => [view.number, reading.at], choose: goTo({ isFound: true }) });
reading.onDrawn = (chosen) => {
  const first = find.mark(chosen)?.getBoundingClientRect().top;
  const { top, bottom } = byId("panel").getBoundingClientRect();
  if (first !== undefined && reading.isFound && (first < top || first > bottom - 24)) reading.scrollTo(first);
};

// Shows an entry everywhere on the page.
function choose(at) {
  reading.show(view.session, at);
  tree.mark(at, reading.path, reading.context);
  map.select(reading.path);
  if (at !== undefined) tree.reveal(at);
  byId("leaves").value = view.session.leaves.includes(at) ? String(at) : "";
  find.tell();
}

// Chooses an entry for whoever wants to read it: it has the address, and on a narrow window the pane opens.
function read(at, { isFound = false, isFar = false } = {}) {
  pane.openFor(addressOf(view.number, at));
  reading.isFound = isFound;
  reading.wanted = isFound ? find.wanted : "";
  choose(at);
  if (isFar) byId("reading").scrollIntoView({ block: "nearest" });
}

// Returns what reads an entry of any session.
function goTo(how) {
  return (place, at) => {
    if (place !== view.number) showSession(place);
    read(at, how);
  };
}

// Goes to the entry that the address names, when the page opens, and when the address changes.
function goToAddress() {
  view.hash = location.hash;
  const wanted = addressed();
  // Somebody followed a link, or came back to where the pane was open or closed.
  const isNew = history.state === null;
  pane.set(isNew ? wanted !== undefined : history.state.pane);
  if (isNew) setAddress(location.href, { state: { pane: false } });
  if (view.number < 0 || (wanted && wanted.place !== view.number)) showSession(wanted?.place ?? 0);
  if (wanted && wanted.at !== reading.at) choose(wanted.at);
}

function showSession(place, chosen = sessions[place].leaf ?? undefined) {
  view.number = place;
  view.session = sessions[place].children ? sessions[place] : prepare(sessions[place]);
  const session = view.session;
  [...byId("sessions").querySelectorAll("button")].forEach((button, each) =>
    button.setAttribute("aria-current", String(each === place)));
  const { tokens, paid } = session.spent;
  const spent = ["spent", `${tokens === null ? "—" : number(tokens)} tokens, ${moneyText(paid)}`];
  byId("facts").replaceChildren(...factList([...session.facts, spent]).childNodes);
  byId("tree").setAttribute("aria-label", `Entries of ${session.name}`);
  drawTiles(session);
  drawLeaves(session);
  tree.show(session);
  map.show(session);
  reading.wanted = "";
  choose(chosen);
}

function drawTiles(session) {
  const context = contextOf(session, session.leaf ?? undefined);
  const turns = session.entries.filter((entry) => entry.asks).length;
  const tiles = [
    ["Stored", number(session.stored ?? session.entries.length), `${session.entries.length === 1 ? "entry" : "entries"}, ${counted(turns, "prompt")}${session.isPart ? " on this page" : ""}`],
    ["Branches", number(session.leaves.length), session.leaves.length === 1 ? "one straight line" : "ends in the tree"],
    ["The model sees", lengthOf(context), session.counted ? `messages, size ${short(tokensOf(session, context))} tokens` : "messages at the leaf"],
    ["Cost", totalText(), moneyNote()],
  ];
  byId("tiles").replaceChildren(...tiles.map(([name, value, note]) => make("li", {},
    make("span", { class: "tile-name", text: name }),
    make("span", { class: "tile-value", text: value }),
    make("span", { class: "muted", text: note }))));
}

function totalText() {
  if (!data.models) return "…";
  const [picodollars, calls, unpriced] = data.models.total.paid;
  return calls && calls === unpriced ? "—" : dollars(picodollars);
}

function moneyNote() {
  if (!data.models) return "being added up";
  const { paid: [, calls, unpriced], unknown } = data.models.total;
  if (!calls) return "no call was paid for";
  return counted(calls, "call") + (unpriced ? `, ${number(unpriced)} unpriced` : "") +
    (unknown ? `, ${number(unknown)} of unknown usage` : "") + (sessions.length > 1 ? ", with tasks" : "");
}

const MOST_LEAVES = 500;

// The leaves to choose from, as place and text: the first ones, and those that have to be among them.
function leafOptions(session, needed) {
  const listed = session.leaves.slice(0, MOST_LEAVES);
  for (const at of needed) if (at !== null && !listed.includes(at)) listed.unshift(at);
  return listed.map((at) => {
    const entry = session.entries[at];
    return [at, `${at === session.leaf ? "● " : ""}${entry.id} · ${lineOf(entry).slice(0, 40)}`];
  });
}

function drawLeaves(session) {
  const needed = session.leaves.includes(session.leaf) ? [session.leaf] : [];
  const options = leafOptions(session, needed).map(([value, text]) => make("option", { value, text }));
  byId("leaves").replaceChildren(make("option", { value: "", text: `${counted(session.leaves.length, "leaf", "leaves")}` }), ...options);
}

function drawSessions() {
  if (sessions.length < 2) return;
  const nav = byId("sessions");
  nav.hidden = false;
  nav.append(...sessions.map((session, place) => make("button", {
    type: "button", "aria-current": "false", title: session.name, on: { click: () => showSession(place) },
  }, make("bdi", { class: "chip-title", text: session.name }),
  place ? make("bdi", { class: "muted", text: `task ${session.agent}` }) : make("span", { class: "muted", text: "this session" }))));
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

function drawTitle() {
  document.title = byId("title").textContent = data.title;
}

drawTitle();
byId("made").textContent = data.made ? `Made ${data.made} by flue_py.` : "Made by flue_py.";
if (data.unchecked) byId("made").textContent += " Unchecked: read without its key, and others may have changed it.";
byId("tree-legend").append(
  make("span", { class: "key seen" }), "in the context ",
  make("span", { class: "key" }), "stored only");
byId("leaves").addEventListener("change", (event) => event.target.value && read(Number(event.target.value)));
drawSessions();
drawMoney();
goToAddress();
addEventListener("popstate", goToAddress);
// Not every browser tells of a changed fragment by both.
addEventListener("hashchange", () => location.hash !== view.hash && goToAddress());
find.search();
const chart = new GrowthChart(goTo({ isFar: true }));
startTheme(chart);
startPrinting(chart);
