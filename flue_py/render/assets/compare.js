// Two places of a session side by side: what their paths share, and what each has by itself.

// What the path to `at` has that the one to `other` has not, the reverse, and the last entry they share.
function differenceOf(session, at, other) {
  const [mine, theirs] = [pathOf(session, at), pathOf(session, other)];
  let shared = 0;
  while (shared < mine.length && shared < theirs.length && mine[shared] === theirs[shared]) shared += 1;
  return { ancestor: shared ? mine[shared - 1] : undefined, shared, left: mine.slice(shared), right: theirs.slice(shared) };
}

// The tokens that the answers and compactions of a side say they used, null where none of them says anything. A summary
// of a branch counts by its cost alone.
function usedBy(entries) {
  const called = entries.filter(({ kind, paid }) => paid && kind !== "branch_summary");
  const said = called.filter(({ usage }) => usage);
  return called.length && !said.length ? null : said.reduce((sum, { usage }) => sum + usage[4], 0);
}

// The tools that were called, most often called first, then by name, as `flue-py diff` has them; "" for none.
function toolsOf(entries) {
  const uses = new Map();
  const use = (name) => uses.get(name) ?? uses.set(name, { name, calls: 0, failed: 0 }).get(name);
  for (const { calls = NOTHING, tool, failed } of entries) {
    for (const name of calls) use(name).calls += 1;
    if (failed && tool) use(tool).failed += 1;
  }
  const ranked = [...uses.values()].sort((one, other) => other.calls - one.calls || (one.name < other.name ? -1 : 1));
  return ranked.map(({ name, calls, failed }) => `${name} ${number(calls)}${failed ? ` (${number(failed)} failed)` : ""}`).join(", ");
}

// Which leaf to compare with before one is chosen: the one of the session, else the newest of the others.
function otherLeaf(session, at) {
  return session.leaf !== null && session.leaf !== at ? session.leaf : session.leaves.findLast((leaf) => leaf !== at);
}

function compareElement(session, at, other, { choose, compare }) {
  const { ancestor, shared, left, right } = differenceOf(session, at, other);
  const leaves = make("select", {
    id: "other-leaf", on: { change: (event) => compare(Number(event.target.value)) },
  }, ...leafOptions(session, [other]).map(([value, text]) => make("option", { value, text, selected: value === other })));
  const common = make("div", { class: "common" }, make("h3", {
    text: shared ? `In common: ${counted(shared + outsideOf(session, pathOf(session, at)), "entry", "entries")}, the last of them` : "Nothing in common",
  }));
  if (ancestor !== undefined) common.append(make("ol", { class: "brief" }, briefElement(session, ancestor, choose)));
  return make("div", { class: "compare" },
    make("label", { class: "field" }, make("span", { text: "Compare with" }), leaves),
    common,
    make("div", { class: "sides" },
      sideElement(session, at, left, "left", choose),
      sideElement(session, other, right, "right", choose)));
}

const MOST_BRIEF = 200;

function sideElement(session, leaf, places, side, choose) {
  const entries = places.map((at) => session.entries[at]);
  const roles = new Map();
  for (const entry of entries) if (entry.kind === "message") roles.set(entry.name, (roles.get(entry.name) ?? 0) + 1);
  const said = [...roles].sort().map(([role, count]) => `${number(count)} ${role}`).join(", ");
  const tools = toolsOf(entries);
  const made = make("section", { class: `side ${side}`, "aria-label": `Only at ${session.entries[leaf].id}` },
    make("h3", {}, "Only at ", make("code", { text: session.entries[leaf].id, dir: "auto" })));
  if (!entries.length) {
    made.append(make("p", { class: "muted", text: "Nothing of its own." }));
    return made;
  }
  made.append(
    factList([
      ["entries", counted(entries.length, "entry", "entries") + (said ? ` (${said})` : "")],
      ...(tools ? [["tools", tools]] : NOTHING),
      ["tokens used", known(usedBy(entries))],
      ["cost", moneyText(sumPaid(entries))],
    ]),
    make("ol", { class: "brief" }, ...places.slice(0, MOST_BRIEF).map((at) => briefElement(session, at, choose))));
  if (places.length > MOST_BRIEF) {
    made.append(make("p", { class: "muted", text: `and ${counted(places.length - MOST_BRIEF, "more entry", "more entries")}` }));
  }
  return made;
}

function briefElement(session, at, choose) {
  const entry = session.entries[at];
  return make("li", {}, make("button", { type: "button", "data-entry": entry.id, title: entry.id, on: { click: () => choose(at) } },
    make("span", { class: `name ${tint(entry)}`, text: entry.name }),
    make("bdi", { class: "line", text: lineOf(entry) }),
    entry.paid ? make("span", { class: "cost", text: moneyText(entry.paid) }) : null));
}
