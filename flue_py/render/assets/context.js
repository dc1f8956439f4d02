// What there is to read of the selected entry: what the model sees there, the branch it is on, the entry itself, and
// how it compares with another leaf.

class Reading {
  constructor(choose) {
    this.choose = choose;
    this.tab = 0;
    this.isRaw = false;
    this.wanted = "";
    byId("raw").addEventListener("click", () => {
      this.isRaw = !this.isRaw;
      byId("raw").setAttribute("aria-pressed", String(this.isRaw));
      this.drawPanel();
    });
  }

  show(session, at) {
    if (session !== this.session) this.other = undefined;
    this.session = session;
    this.at = at;
    this.path = at === undefined ? [] : pathOf(session, at);
    this.branch = at === undefined ? [] : branchOf(session, at);
    this.context = contextOf(session, at);
    const title = byId("reading-title");
    if (at === undefined) title.textContent = "Before the first entry";
    else title.replaceChildren("At ", make("code", { text: session.entries[at].id, dir: "auto" }));
    this.drawAgainst();
    this.drawTabs();
    this.onShown?.();
  }

  // The bars: all that is stored, the path, and what of it the model sees.
  drawAgainst() {
    const { session, path, context } = this;
    const everything = session.stored ?? session.entries.length;
    const rows = [
      ["Stored, all branches", everything, session.tokens, "entry", "entries"],
      ["Stored on this path", path.length + outsideOf(session, path), tokensOf(session, path), "entry", "entries"],
      ["The model sees", context.length + context.before, tokensOf(session, context), "message", "messages"],
    ];
    const most = Math.max(1, session.counted ? session.tokens : everything);
    byId("against").replaceChildren(...rows.map(([name, count, tokens, one, many], place) => {
      const fill = make("span", { class: place === 2 ? "fill seen" : "fill" });
      fill.style.width = `${(100 * (session.counted ? tokens : count)) / most}%`;
      const figures = (place === 2 && context.before === null ? "…" : counted(count, one, many)) + (session.counted ? `, size ${short(tokens)} tokens` : "");
      return make("div", { class: "measure" },
        make("span", { class: "what", text: name }),
        make("span", { class: "bar", "aria-hidden": "true" }, fill),
        make("span", { class: "figure", text: figures }));
    }));
  }

  drawTabs() {
    const names = [`Model sees (${lengthOf(this.context)})`, `Branch (${number(this.branch.length)})`, "Entry"];
    this.panels = [this.contextElement, this.branchElement, this.entryElement];
    if (this.session.leaves.length > 1) {
      names.push("Compare");
      this.panels.push(this.compareElement);
    }
    if (this.session.sent || this.makeSent) {
      names.push("Sent");
      this.panels.push(this.sentElement);
    }
    this.tab = Math.min(this.tab, names.length - 1);
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
    byId("raw").hidden = this.tab > 2;
    panel.replaceChildren(this.panels[this.tab].call(this));
    this.scroll();
    this.onDrawn?.(panel.querySelector(".message.chosen, .entry"));
  }

  get how() {
    return { chosen: this.at, choose: this.choose, isRaw: this.isRaw, wanted: this.wanted };
  }

  // Brings the selected entry into sight: its beginning, with a bit of what is before it.
  scroll() {
    const panel = byId("panel");
    const chosen = panel.querySelector(".message.chosen");
    if (chosen) this.scrollTo(chosen.getBoundingClientRect().top);
    else panel.scrollTop = 0;
  }

  scrollTo(top) {
    const panel = byId("panel");
    panel.scrollTop += top - panel.getBoundingClientRect().top - Math.min(72, panel.clientHeight / 8);
  }

  // Where the selected entry is not in the context, it is told of behind it.
  contextElement() {
    const seen = new Set(this.context);
    const isThere = this.at === undefined || seen.has(this.at);
    const places = isThere ? this.context : [...this.context, this.at];
    if (!this.context.length && isThere) return make("p", { class: "muted", text: "Nothing: the context is empty here." });
    const list = messageList(this.session, places, { ...this.how, seen, note: "selected, not in the context" });
    const before = this.context.before === null ? "What comes before is being read." : `Not on this page: ${counted(this.context.before, "message")} of it.`;
    if (this.context.before !== 0) list.prepend(make("li", { class: "gap", text: before }));
    return list;
  }

  branchElement() {
    if (this.at === undefined) return make("p", { class: "muted", text: "No entry is selected." });
    // What comes after the selected entry is neither in its context nor left out of it.
    const seen = new Set([...this.context, ...this.branch.slice(this.path.length)]);
    return messageList(this.session, this.branch, { ...this.how, seen, note: "not in the context" });
  }

  entryElement() {
    if (this.at === undefined) return make("p", { class: "muted", text: "No entry is selected." });
    const entry = this.session.entries[this.at];
    const facts = [
      ["entry", entry.id],
      ["parent", entry.outside ? entry.outside[0] : isDamaged(entry) ? "—" : entry.parent === undefined ? "(a root)" : this.session.entries[entry.parent].id],
      ["kind", entry.kind],
      ["role", entry.role],
      ["agent", entry.agent],
      ["source", entry.source],
      ["label", entry.label],
      ["pinned", entry.pinned && "every later compaction keeps it"],
      ["created", isDamaged(entry) ? "—" : `${whenOf(entry)} UTC`],
      ["size", entry.tokens ? counted(entry.tokens, "token") : undefined],
      ["model", entry.model],
      ["used", entry.usage && usageText(entry.usage)],
      ["cost", entry.paid && moneyText(entry.paid)],
    ];
    const made = make("div", { class: "entry" }, factList(facts.filter(([, value]) => value)));
    const isMarkdown = MARKDOWN_SAID.has(entry.kind === "message" ? entry.role : entry.kind);
    made.append(...entry.parts.map((part) => partElement(part, { ...this.how, isMarkdown })));
    if (entry.compaction) made.append(compactionElement(this.session, this.at, this.choose));
    if (entry.rest !== undefined) {
      made.append(make("h3", { text: "Stored beside it" }), partElement(["json", this.session.rests[entry.rest]]));
    }
    return made;
  }

  sentElement() {
    if (this.at === undefined) return make("p", { class: "muted", text: "No entry is selected." });
    return this.makeSent ? this.makeSent() : sentElement(this.session, this.choose);
  }

  compareElement() {
    if (this.at === undefined) return make("p", { class: "muted", text: "No entry is selected." });
    if (this.other === undefined) this.other = otherLeaf(this.session, this.at);
    return compareElement(this.session, this.at, this.other, {
      choose: this.choose,
      compare: (other) => {
        this.other = other;
        this.drawPanel();
        byId("other-leaf").focus();
      },
    });
  }
}

function factList(facts) {
  const list = make("dl", { class: "facts-list" });
  for (const [name, value] of facts) list.append(make("dt", { text: name }), make("dd", { text: value, dir: "auto" }));
  return list;
}
