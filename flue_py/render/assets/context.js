// What there is to read of the selected entry: what the model sees there, the stored path, the entry itself.

class Reading {
  constructor(choose) {
    this.choose = choose;
    this.tab = 0;
  }

  show(session, at) {
    this.session = session;
    this.at = at;
    this.path = at === undefined ? [] : pathOf(session, at);
    this.context = at === undefined ? [] : contextOf(session, at);
    const title = byId("reading-title");
    if (at === undefined) title.textContent = "Before the first entry";
    else title.replaceChildren("At ", make("code", { text: session.entries[at].id, dir: "auto" }));
    this.drawAgainst();
    this.drawTabs();
  }

  // The bars: all that is stored, the path, and what of it the model sees.
  drawAgainst() {
    const { session, path, context } = this;
    const everything = session.entries.length;
    const rows = [
      ["Stored, all branches", everything, session.tokens, "entry", "entries"],
      ["Stored on this path", path.length, tokensOf(session, path), "entry", "entries"],
      ["The model sees", context.length, tokensOf(session, context), "message", "messages"],
    ];
    const most = Math.max(1, session.counted ? session.tokens : everything);
    byId("against").replaceChildren(...rows.map(([name, count, tokens, one, many], place) => {
      const fill = make("span", { class: place === 2 ? "fill seen" : "fill" });
      fill.style.width = `${(100 * (session.counted ? tokens : count)) / most}%`;
      const figures = counted(count, one, many) + (session.counted ? `, ${short(tokens)} tokens` : "");
      return make("div", { class: "measure" },
        make("span", { class: "what", text: name }),
        make("span", { class: "bar", "aria-hidden": "true" }, fill),
        make("span", { class: "figure", text: figures }));
    }));
  }

  drawTabs() {
    const names = [`Model sees (${number(this.context.length)})`, `Path (${number(this.path.length)})`, "Entry"];
    const tabs = names.map((text, place) => make("button", {
      type: "button", role: "tab", id: `tab-${place}`, text, "aria-controls": "panel",
      "aria-selected": String(place === this.tab), tabindex: place === this.tab ? 0 : -1,
      on: { click: () => this.chooseTab(place) },
    }));
    roving(tabs, (place) => this.chooseTab(place));
    byId("tabs").replaceChildren(...tabs);
    this.drawPanel();
  }

  chooseTab(place) {
    this.tab = place;
    [...byId("tabs").children].forEach((tab, each) => {
      tab.setAttribute("aria-selected", String(each === place));
      tab.tabIndex = each === place ? 0 : -1;
    });
    this.drawPanel();
  }

  drawPanel() {
    const panel = byId("panel");
    panel.setAttribute("aria-labelledby", `tab-${this.tab}`);
    panel.scrollTop = 0;
    const choose = this.choose;
    if (this.tab === 2) panel.replaceChildren(this.entryElement());
    else {
      const places = this.tab === 0 ? this.context : this.path;
      const how = this.tab === 0 ? { choose } : { choose, seen: new Set(this.context), note: "not in the context" };
      panel.replaceChildren(places.length
        ? messageList(this.session, places, how)
        : make("p", { class: "muted", text: "Nothing: the context is empty here." }));
    }
  }

  entryElement() {
    if (this.at === undefined) return make("p", { class: "muted", text: "No entry is selected." });
    const entry = this.session.entries[this.at];
    const usage = entry.usage ?? [];
    const facts = [
      ["entry", entry.id],
      ["parent", entry.parent === undefined ? "(a root)" : this.session.entries[entry.parent].id],
      ["kind", entry.kind],
      ["role", entry.role],
      ["agent", entry.agent],
      ["source", entry.source],
      ["label", entry.label],
      ["created", `${entry.at} UTC`],
      ["size", entry.tokens ? counted(entry.tokens, "token") : undefined],
      ["model", entry.model],
      ["used", entry.usage && `${number(usage[0])} input, ${number(usage[1])} output, ${number(usage[2])} cache read, `
        + `${number(usage[3])} cache write`],
      ["cost", entry.usage && (entry.cost ?? "—")],
    ];
    const made = make("div", { class: "entry" }, factList(facts.filter(([, value]) => value)));
    made.append(...entry.parts.map(([kind, text]) => partElement(kind, text)));
    if (entry.rest) made.append(make("h3", { text: "Stored beside it" }), partElement("json", entry.rest));
    return made;
  }
}

function factList(facts) {
  const list = make("dl", { class: "facts-list" });
  for (const [name, value] of facts) list.append(make("dt", { text: name }), make("dd", { text: value, dir: "auto" }));
  return list;
}
