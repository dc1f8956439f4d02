// A compaction, drawn: what went into it, what came out, what was lost on the way, and whether it is in effect.

function compactionElement(session, at, choose) {
  const entry = session.entries[at];
  const told = entry.compaction;
  const made = make("section", { class: "compaction", "aria-label": "The compaction" });
  made.append(make("h3", { text: "What became of it" }), make("p", {}, ...fateOf(session, told, choose)));
  if (told.in) made.append(...sizesOf(session, entry, told, choose), ...lossOf(session, told, choose));
  else if (told.takesBack === undefined) made.append(make("p", { class: "muted", text: "What it lost is shown for the newest compactions only." }));
  return made;
}

function entryLink(session, at, choose) {
  return make("button", { type: "button", class: "link", text: session.entries[at].id, dir: "auto", on: { click: () => choose(at) } });
}

function fateOf(session, told, choose) {
  const link = (at) => entryLink(session, at, choose);
  const said = [];
  if (told.takesBack !== undefined) {
    said.push("It takes a compaction back");
    if (told.takesBack !== null) said.push(": ", link(told.takesBack));
    if (told.restores === null) said.push("; no other is in effect then.");
    else said.push("; in effect again: ", link(told.restores), ".");
    return said;
  }
  said.push(told.isInEffect ? "At the leaf it is in effect." : "At the leaf it is not in effect.");
  for (const taker of told.takenBackBy ?? []) said.push(" Taken back by ", link(taker), ".");
  return said;
}

// Two bars: what went in, and what came out of it.
function sizesOf(session, entry, told, choose) {
  const out = entry.tokens ?? 0;
  const most = Math.max(1, told.tokensIn, out);
  const bar = (name, tokens, figures, isOut) => {
    const fill = make("span", { class: isOut ? "fill seen" : "fill" });
    fill.style.width = `${(100 * tokens) / most}%`;
    return make("div", { class: "measure" },
      make("span", { class: "what", text: name }),
      make("span", { class: "bar", "aria-hidden": "true" }, fill),
      make("span", { class: "figure", text: figures + (session.counted ? `, size ${short(tokens)} tokens` : "") }));
  };
  const made = [
    make("h3", { text: "What went in, and what came out" }),
    make("div", { class: "against" },
      bar("Went in", session.counted ? told.tokensIn : most, counted(told.entries, "message"), false),
      bar("Came out", session.counted ? out : 0, "1 summary", true)),
  ];
  if (told.in.length) {
    const stretches = told.in.slice(0, 10).flatMap(([first, last], place) => [
      place ? ", " : "", entryLink(session, first, choose), ...(last > first ? [" to ", entryLink(session, last, choose)] : []),
    ]);
    made.push(make("p", {}, "It stands for ", ...stretches, told.in.length > 10 ? ", …" : "."));
  }
  return made;
}

function lossOf(session, told, choose) {
  const made = [make("h3", { text: "What was lost" })];
  if (!told.kinds.length) return [...made, make("p", { class: "muted", text: "Nothing that is looked for was said." })];
  const rows = told.kinds.map(([kind, total, covered]) =>
    [kind, numeric(number(total)), numeric(number(covered)), numeric(`${Math.floor((100 * covered) / total)}%`)]);
  made.push(make("div", { class: "wide" }, table(["Fact", "Said", "Still said", "Share"], rows)));
  for (const [kind, total, covered, lost, leftOut] of told.kinds) {
    if (!lost.length) continue;
    const items = lost.map(([text, at, count]) => make("li", {},
      make("bdi", { class: "fact", text }), " ",
      at === null ? null : entryLink(session, at, choose),
      count > 1 ? ` ${number(count)} times` : null));
    if (leftOut) items.push(make("li", { class: "muted", text: `${number(leftOut)} more` }));
    made.push(make("h4", { text: `${kind}: ${number(total - covered)} lost` }), make("ul", { class: "lost" }, ...items));
  }
  return made;
}
