// The page of a session on its server: it follows what happens, reads on where it ends, and does what its reader wants.

const PAGE = `/page/sessions/${segmentOf(sessions[0].id)}`;
const API = `/v1/sessions/${segmentOf(sessions[0].id)}`;
const state = make("span", { class: "badge", text: "connecting" });
const window_ = make("p", { class: "muted part-of" });
byId("tiles").after(window_);

// -- what the page has of the session --------------------------------------------------------------------------------

function drawLinks() {
  const links = [["", "/", "All sessions"], ...data.links].map(([what, href, name]) => make("a", { href },
    make("bdi", { class: "chip-title", text: name }), what ? make("bdi", { class: "muted", text: what }) : null));
  byId("sessions").hidden = false;
  byId("sessions").replaceChildren(...links);
  const around = (at, text) => at && make("a", { href: `?at=${encodeURIComponent(at)}#${encodeURIComponent(at)}`, text });
  const parts = [around(data.earlier, "Earlier"), around(data.later, "Later"), location.search && make("a", { href: location.pathname, text: "At the leaf" })];
  const isLonger = data.earlier || data.later;
  const broken = counted(data.damaged.length, "entry is", "entries are");
  window_.replaceChildren(...(isLonger ? [`This page has ${counted(sessions[0].entries.length, "entry", "entries")} of a longer session.`] : []),
    ...parts.filter(Boolean).flatMap((link) => [" ", link]),
    ...(data.damaged.length ? [make("span", { class: "refused", text: ` ${broken} damaged, and cannot be read: ${data.damaged.join(", ")}` })] : []));
  byId("growth-note").after(byId("growth-part"));
  byId("growth-part").hidden = !sessions[0].isPart;
}

// Goes where the address names an entry that is not on the page.
function goOutside() {
  let wanted;
  try {
    wanted = decodeURIComponent(location.hash.slice(1));
  } catch {
    return;
  }
  const isElsewhere = wanted && addressed() === undefined && sessions[0].isPart;
  if (isElsewhere && new URLSearchParams(location.search).get("at") !== wanted) {
    location.replace(`?at=${encodeURIComponent(wanted)}${location.hash}`);
  }
}

const contexts = new Map();

// Asks for a context that begins before the page. What it has at an entry never changes.
reading.onShown = () => {
  drawActs();
  if (reading.at === undefined || reading.context.before !== null) return;
  const { entries } = sessions[0];
  let begin = reading.at;
  while (entries[begin].context !== null) begin = entries[begin].parent;
  const { id } = entries[begin];
  if (contexts.has(id)) return;
  contexts.set(id, undefined);
  ask(`${PAGE}/context?leaf=${encodeURIComponent(id)}`).then((context) => {
    if (context.count === null) {
      tell(`Nobody knows what the model sees here: the entry ${context.damaged ?? "—"} is damaged.`, { isBad: true });
      return;
    }
    contexts.set(id, context);
    setContexts();
    drawTiles(view.session);
    choose(reading.at);
  }, tellError);
};

function setContexts() {
  const { entries } = sessions[0];
  if (!contexts.size) return;
  const placeOf = new Map(entries.map((entry, at) => [entry.id, at]));
  for (const [id, context] of contexts) {
    const entry = entries[placeOf.get(id)];
    if (!entry || !context) continue;
    const places = context.entryIds.map((each) => placeOf.get(each)).filter((at) => at !== undefined);
    Object.assign(entry, { context: places.map((at) => [at, at]), before: context.count - places.length });
  }
}

// The request at the selected entry, in the form of a target, which is made when somebody looks at it.
const TARGETS = ["anthropic", "openai-chat", "openai-responses", "gemini"];
let target = TARGETS[0];
let agent = "";

reading.makeSent = () => {
  const { id } = chosenEntry();
  const told = make("div", {}, make("p", { class: "muted", text: "It is being made." }));
  const agents = make("select", { name: "agent", on: { change: (event) => { agent = event.target.value; reading.drawPanel(); } } },
    ...["", ...data.agents].map((name) => make("option", { value: name, text: name || "any agent", selected: name === agent })));
  const targets = make("select", { on: { change: (event) => { target = event.target.value; reading.drawPanel(); } } },
    ...TARGETS.map((name) => make("option", { value: name, text: name, selected: name === target })));
  ask(`${PAGE}/sent?leaf=${encodeURIComponent(id)}&target=${target}&agent=${encodeURIComponent(agent)}`).then((sent) => {
    const placeOf = new Map(view.session.entries.map((entry, at) => [entry.id, at]));
    const placed = (rows) => rows.map((row) => ({ ...row, at: row.at === null ? null : placeOf.get(row.at) }));
    const all = { changed: placed(sent.changed), repairs: placed(sent.repairs) };
    const isHere = ({ at }) => at !== undefined;
    const shown = { ...sent, isAsked: true, all: all.changed, changed: all.changed.filter(isHere), repairs: all.repairs.filter(isHere) };
    const left = all.changed.length - shown.changed.length;
    told.replaceChildren(sentElement({ ...view.session, sent: shown }, reading.choose),
      ...(left ? [make("p", { class: "muted", text: `Not on this page: ${counted(left, "more of them", "more of them")}` })] : []));
  }, (error) => told.replaceChildren(make("p", { class: "refused", text: error.message })));
  return make("div", {}, make("div", { class: "tools" }, make("label", { class: "field" }, make("span", { text: "As sent to" }), targets),
    data.agents.length ? make("label", { class: "field" }, make("span", { text: "by" }), agents) : null), told);
};

// What has to be added up from all of a long session comes when nothing happens.
let adding;

function addUp() {
  if (!sessions[0].isPart) return;
  clearTimeout(adding);
  adding = setTimeout(async () => {
    try {
      const { paid, models } = await ask(`${PAGE}/figures${location.search}`);
      for (const entry of sessions[0].entries) if (paid[entry.id]) entry.paid = paid[entry.id];
      data.models = models;
      sessions[0].isPaid ||= sessions[0].entries.some((entry) => entry.paid);
      drawTiles(view.session);
      drawMoney();
      tree.rebuild();
      chart.draw();
    } catch (error) {
      tellError(error);
    }
  }, data.models ? 3000 : 0);
}

// -- following -------------------------------------------------------------------------------------------------------

// Draws the page anew: whoever was at the leaf is at the new one, anybody else stays where he was.
function draw(fresh) {
  const { leaf, entries } = view.session;
  const idOf = (at) => entries[at].id;
  const chosen = reading.at === undefined || reading.at === leaf ? undefined : idOf(reading.at);
  const folds = [tree.open, tree.closed].map((places) => [...places].map(idOf));
  const [top, panelTop, current] = [byId("tree-box").scrollTop, byId("panel").scrollTop, tree.rows[tree.current]];
  const focused = document.activeElement;
  const hadFocus = byId("tree").contains(focused);
  Object.assign(data, fresh, { models: fresh.models ?? data.models });
  sessions.splice(0, sessions.length, ...fresh.sessions);
  sessions.forEach(unpack);
  setContexts();
  const placeOf = new Map(sessions[0].entries.map((entry, at) => [entry.id, at]));
  showSession(0, placeOf.get(chosen));
  [tree.open, tree.closed] = folds.map((ids) => new Set(ids.map((id) => placeOf.get(id)).filter((at) => at !== undefined)));
  tree.rebuild();
  if (chosen === undefined) tree.reveal(view.session.leaf ?? 0);
  else {
    byId("tree-box").scrollTop = top;
    byId("panel").scrollTop = panelTop;
    const place = current && tree.placeOf.get(placeOf.get(idOf(current.at)));
    if (place !== undefined) tree.current = place;
    tree.draw();
  }
  if (hadFocus) tree.focus(tree.current);
  drawTitle();
  drawLinks();
  drawMoney();
  chart.draw();
  if (byId("turns").childElementCount) chart.fill();
  find.search();
  addUp();
}

let isStale = false;
let renewing;

// Renews the page, once for all that happens while it does.
function renew() {
  isStale = true;
  renewing ??= (async () => {
    try {
      while (isStale) {
        isStale = false;
        draw(await ask(PAGE + location.search));
      }
    } catch (error) {
      tellError(error);
    } finally {
      renewing = undefined;
    }
  })();
  return renewing;
}

function followSession() {
  const events = follow(`${API}/events?after=${encodeURIComponent(data.after)}`, state, () => renew().then(followSession));
  for (const type of data.events) events.addEventListener(type, () => {
    if (type !== "session_deleted") renew();
    else {
      events.close();
      state.textContent = "deleted";
      tell("This session was deleted.", { isBad: true });
    }
  });
}

// -- what the reader does --------------------------------------------------------------------------------------------

const button = (text, act) => make("button", { type: "button", text, on: { click: act } });
const label = make("input", { name: "label", placeholder: "Label", "aria-label": "Label", autocomplete: "off" });
const move = button("Move leaf here", () => act("/move", { to: chosenEntry().id }, "The leaf is here."));
const fork = button("Fork here", () => act("/fork", { at: chosenEntry().id }, "Forked: "));
const pin = button("Pin", () => mark({ pinned: !chosenEntry().pinned }));
const acts = make("form", { class: "tools acts", "aria-label": "The selected entry" },
  move, fork, pin, label, make("button", { type: "submit", text: "Set label" }));
acts.addEventListener("submit", (event) => {
  event.preventDefault();
  mark({ label: label.value || null });
});
byId("against").before(acts);
byId("theme").before(make("div", { class: "tools" }, ...["undo", "redo"].map((name) =>
  button(name === "undo" ? "Undo" : "Redo", () => act(`/${name}`, {}, "Done.")))));

function chosenEntry() {
  return view.session.entries[reading.at];
}

function drawActs() {
  const entry = chosenEntry();
  acts.hidden = !entry;
  if (!entry) return;
  move.disabled = reading.at === view.session.leaf || isDamaged(entry);
  pin.textContent = entry.pinned ? "Unpin" : "Pin";
  if (acts.dataset.entry !== entry.id) label.value = entry.label ?? "";
  acts.dataset.entry = entry.id;
}

function mark(body) {
  return act(`/entries/${segmentOf(chosenEntry().id)}/marks`, body, "Done.", "PUT");
}

// Writes, if the session is still as the page has it.
async function act(path, body, words, method = "POST") {
  const key = [...crypto.getRandomValues(new Uint8Array(16))].join("-");
  const headers = { "If-Match": data.etag, ...(method === "POST" && { "Idempotency-Key": key }) };
  try {
    const done = await ask(API + path, { method, body, headers });
    const link = path === "/fork" ? { href: `/sessions/${segmentOf(done.id)}`, text: done.name } : undefined;
    tell(done.moved === false ? `Nothing was done: ${done.reason ?? "there is nothing to do"}.` : words, { link });
  } catch (error) {
    if (error.status !== 409 && error.status !== 412) tellError(error);
    else tell(`Nothing was changed, as somebody else changed the session. The page shows it as it is now: do it again if you still want to. (${error.message})`, { isBad: true });
  }
  await renew();
}

byId("growth-note").after(make("p", { id: "growth-part", class: "muted", text: "Of the entries on this page." }));
document.querySelector(".kicker").replaceChildren("Session ", state);
addEventListener("hashchange", goOutside);
goOutside();
drawLinks();
choose(reading.at);
addUp();
followSession();
