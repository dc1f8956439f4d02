// Finding entries of all sessions: how many there are, the next one, the one before, and the marks in what is shown of
// them. A hit is a session and an entry of it, by their places.

class Find {
  constructor({ sessions, current, choose }) {
    this.sessions = sessions;
    this.current = current;
    this.choose = choose;
    this.wanted = "";
    this.hits = [];
    this.input = byId("find");
    this.input.addEventListener("input", () => this.search());
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      // Else the key would press the button that gets the focus.
      event.preventDefault();
      this.step(event.shiftKey ? -1 : 1);
    });
    for (const button of document.querySelectorAll("[data-find]")) {
      button.addEventListener("click", () => this.step(Number(button.dataset.find)));
    }
    document.addEventListener("keydown", (event) => {
      const isTyping = event.target.closest("input, select, textarea");
      if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey || document.body.dataset.pane) return;
      event.preventDefault();
      this.input.select();
    });
  }

  search() {
    const wanted = this.input.value.toLowerCase();
    const has = (text) => text !== undefined && text.toLowerCase().includes(wanted);
    const matches = (entry) => entry.id.toLowerCase().startsWith(wanted) || has(entry.label)
      || entry.parts.some((part) => has(textOf(part)) || (part[0] === "diff" && has(part[2])));
    this.wanted = wanted;
    this.hits = [];
    this.sessions.forEach(({ entries }, place) => entries.forEach((entry, at) => {
      if (wanted && matches(entry)) this.hits.push([place, at]);
    }));
    this.tell();
  }

  step(direction) {
    if (!this.hits.length) return;
    const [session, entry = -1] = this.current();
    const isBehind = ([place, at]) => (place - session || at - entry) * direction > 0;
    const next = direction > 0 ? this.hits.find(isBehind) : this.hits.findLast(isBehind);
    this.choose(...(next ?? this.hits.at(direction > 0 ? 0 : -1)));
  }

  tell() {
    const count = this.hits.length;
    const [session, entry] = this.current();
    const rank = this.hits.findIndex(([place, at]) => place === session && at === entry);
    const text = !this.wanted ? "" : !count ? "not found" : rank < 0 ? `${number(count)} found` : `${number(rank + 1)} of ${number(count)}`;
    for (const told of document.querySelectorAll(".found")) told.textContent = text;
    for (const button of document.querySelectorAll("[data-find]")) button.disabled = !count;
    byId("pane-find").hidden = !count;
  }

  // Marks what is looked for in an element, and returns the first place of it.
  mark(element) {
    if (!CSS.highlights) return undefined;
    CSS.highlights.delete("found");
    if (!this.wanted || !element) return undefined;
    const ranges = [];
    const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    while (texts.nextNode() && ranges.length < 200) {
      const text = texts.currentNode.data.toLowerCase();
      // In some scripts small letters are longer than large ones: what has moved is not marked.
      if (text.length !== texts.currentNode.data.length) continue;
      for (let at = text.indexOf(this.wanted); at >= 0; at = text.indexOf(this.wanted, at + this.wanted.length)) {
        const range = new Range();
        range.setStart(texts.currentNode, at);
        range.setEnd(texts.currentNode, at + this.wanted.length);
        ranges.push(range);
      }
    }
    if (ranges.length) CSS.highlights.set("found", new Highlight(...ranges));
    return ranges[0];
  }
}
