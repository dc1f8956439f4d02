// The tree of a session: every branch, runs of entries folded, only the rows in sight rendered.

const PHONE = matchMedia("(max-width: 560px)");
const SPARE = 8;
const SHORTEST_FOLD = 3;
const MOST_OPEN_SIDES = 300;
const DEEPEST_INDENT = 10;

class Tree {
  constructor(box, tree, choose) {
    this.box = box;
    this.tree = tree;
    this.choose = choose;
    this.drawn = new Map();
    // How high a row is: two lines on a phone.
    this.row = PHONE.matches ? 50 : 30;
    PHONE.addEventListener("change", () => {
      this.row = PHONE.matches ? 50 : 30;
      if (this.session) this.rebuild();
    });
    box.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(box);
    tree.addEventListener("keydown", (event) => this.onKey(event));
    tree.addEventListener("click", (event) => this.onClick(event));
  }

  show(session) {
    this.session = session;
    this.open = new Set();
    this.closed = new Set();
    if (session.sides > MOST_OPEN_SIDES) {
      for (const [parent, found] of session.children) if (found.length > 1) this.closed.add(parent);
    }
    this.selected = undefined;
    this.current = 0;
    this.seen = new Set();
    this.onPath = new Set();
    this.rebuild();
    const names = { time: "UTC", ...(session.counted && { size: "Size" }), ...(session.isPaid && { cost: "Cost" }) };
    byId("tree-head").replaceChildren(...Object.entries(names).map(([name, text]) => make("span", { class: name, text })));
  }

  // -- which rows there are ------------------------------------------------------------------------------------

  rebuild() {
    this.rows = [];
    this.placeOf = new Map();
    this.runOf = new Map();
    const waiting = this.session.roots.map((at) => ({ at, level: 0 })).reverse();
    while (waiting.length) this.addBranch(waiting.pop(), waiting);
    const sets = [];
    this.rows.forEach((row, place) => {
      if (row.run === undefined) this.placeOf.set(row.at, place);
      sets.length = Math.min(sets.length, row.level + 1);
      row.siblings = sets[row.level] ??= { size: 0 };
      row.position = row.siblings.size += 1;
    });
    this.current = Math.min(this.current, Math.max(0, this.rows.length - 1));
    this.tree.style.height = `${this.rows.length * this.row}px`;
    for (const element of this.drawn.values()) element.remove();
    this.drawn.clear();
    this.draw();
  }

  addBranch({ at, level, isLater }, waiting) {
    let run = [];
    let isFirst = !isLater;
    for (let here = at; here !== undefined; ) {
      const next = this.session.main.get(here);
      const sides = childrenOf(this.session, here).filter((child) => child !== next);
      if (isFirst || this.isLandmark(here, next, sides)) {
        this.addRun(run, level);
        run = [];
        const isOpen = this.isWhole || !this.closed.has(here);
        this.rows.push({ at: here, level, expanded: sides.length ? isOpen : undefined });
        if (sides.length && isOpen) {
          if (next !== undefined) waiting.push({ at: next, level, isLater: true });
          for (const side of sides.reverse()) waiting.push({ at: side, level: level + 1 });
          return;
        }
      } else {
        run.push(here);
      }
      isFirst = false;
      here = next;
    }
    this.addRun(run, level);
  }

  isLandmark(at, next, sides) {
    const entry = this.session.entries[at];
    const isEnd = next === undefined || sides.length > 0 || at === this.session.leaf;
    const isTurn = entry.kind === "message" && entry.role === "user";
    return isEnd || isTurn || entry.label || entry.pinned || entry.context !== undefined || entry.kind === "branch_summary";
  }

  addRun(run, level) {
    const isOpen = run.length < SHORTEST_FOLD || this.isWhole || this.open.has(run[0]);
    if (run.length >= SHORTEST_FOLD) {
      for (const at of run) this.runOf.set(at, run[0]);
      this.rows.push({ at: run[0], run, level, expanded: isOpen });
    }
    const inner = run.length < SHORTEST_FOLD ? level : level + 1;
    if (isOpen) for (const at of run) this.rows.push({ at, level: inner });
  }

  // Unfolds what hides an entry, and brings its row into sight.
  reveal(at) {
    if (!this.placeOf.has(at)) {
      for (const ancestor of pathOf(this.session, at)) if (ancestor !== at) this.closed.delete(ancestor);
      this.rebuild();
      if (!this.placeOf.has(at)) {
        this.open.add(this.runOf.get(at));
        this.rebuild();
      }
    }
    this.current = this.placeOf.get(at);
    const top = this.current * this.row;
    const isInSight = top >= this.box.scrollTop && top + this.row <= this.box.scrollTop + this.box.clientHeight;
    if (!isInSight) this.box.scrollTop = top - (this.box.clientHeight - this.row) / 2;
    this.draw();
  }

  mark(selected, path, context) {
    this.selected = selected;
    this.onPath = new Set(path);
    this.seen = new Set(context);
    for (const [place, element] of this.drawn) this.paint(element, this.rows[place]);
  }

  // -- what is drawn -------------------------------------------------------------------------------------------

  draw() {
    const [top, bottom] = this.isWhole ? [0, Infinity] : [this.box.scrollTop, this.box.scrollTop + this.box.clientHeight];
    const first = Math.max(0, Math.floor(top / this.row) - SPARE);
    const last = Math.min(this.rows.length, Math.ceil(bottom / this.row) + SPARE);
    for (const [place, element] of this.drawn) {
      if ((place < first || place >= last) && place !== this.current) {
        element.remove();
        this.drawn.delete(place);
      }
    }
    for (let place = first; place < last; place += 1) this.drawRow(place);
    if (this.rows.length) this.drawRow(this.current);
  }

  drawRow(place) {
    if (!this.drawn.has(place)) {
      const element = this.rowElement(place);
      this.drawn.set(place, element);
      // In the order of the rows, for those who read the page by its elements.
      let before = null;
      const isLast = !(Number(this.tree.lastElementChild?.dataset.place) > place);
      for (const child of isLast ? NOTHING : this.tree.children) {
        if (Number(child.dataset.place) > place) {
          before = child;
          break;
        }
      }
      this.tree.insertBefore(element, before);
    }
    this.drawn.get(place).tabIndex = place === this.current ? 0 : -1;
  }

  rowElement(place) {
    const row = this.rows[place];
    const entry = this.session.entries[row.at];
    const element = make("div", {
      role: "treeitem",
      "data-place": place,
      "aria-level": row.level + 1,
      "aria-setsize": row.siblings.size,
      "aria-posinset": row.position,
      "aria-expanded": row.expanded === undefined ? undefined : String(row.expanded),
    });
    element.style.top = `${place * this.row}px`;
    element.style.paddingLeft = `${10 + Math.min(row.level, DEEPEST_INDENT) * 16}px`;
    element.append(make("span", {
      class: row.expanded === undefined ? "twist" : "twist can",
      "aria-hidden": "true",
      text: row.expanded === undefined ? "" : row.expanded ? "▾" : "▸",
    }));
    if (row.run) {
      element.dataset.run = String(row.at);
      element.append(make("span", { class: "run" }));
      const entries = row.run.map((at) => this.session.entries[at]);
      element.append(...this.figures(entry, tokensOf(this.session, row.run), sumPaid(entries)));
    } else {
      element.dataset.entry = entry.id;
      element.append(make("span", { class: `dot ${tint(entry)}`, "aria-hidden": "true" }));
      element.append(make("span", { class: `name ${tint(entry)}`, text: entry.name, title: entry.name }));
      element.append(make("bdi", { class: "line", text: lineOf(entry), title: entry.id }));
      if (entry.pinned) element.append(make("span", { class: "badge", text: "pinned" }));
      if (entry.label) element.append(make("bdi", { class: "badge label", text: entry.label }));
      const sent = sentBadge(this.session, row.at);
      if (sent) element.append(make("span", { class: "badge sent", text: sent, title: "in what the agent is sent at the leaf" }));
      if (row.at === this.session.leaf) element.append(make("span", { class: "badge leaf", text: "leaf" }));
      element.append(...this.figures(entry, entry.tokens, entry.paid ?? [0, 0, 0]));
    }
    this.paint(element, row);
    return element;
  }

  // The columns: when, how many tokens in a context, and what it cost, where anything of the session has those.
  figures(entry, tokens, paid) {
    const { counted: isCounted, isPaid } = this.session;
    return [
      make("span", { class: "time", text: timeOf(this.session, entry), title: `${whenOf(entry)} UTC` }),
      isCounted ? make("span", { class: "size", text: tokens ? short(tokens) : "", "aria-label": tokens ? `size: ${tokens} tokens` : undefined }) : null,
      isPaid ? make("span", { class: "cost", text: paid[1] + (paid[3] ?? 0) ? moneyText(paid) : "" }) : null,
    ].filter(Boolean);
  }

  paint(element, row) {
    const places = row.run ?? [row.at];
    const seen = places.filter((at) => this.seen.has(at)).length;
    element.classList.toggle("seen", seen === places.length);
    element.classList.toggle("partly", seen > 0 && seen < places.length);
    if (row.run) {
      const text = counted(places.length, "entry", "entries");
      element.querySelector(".run").textContent =
        seen > 0 && seen < places.length ? `${text}, ${number(seen)} of them in the context` : text;
    }
    element.classList.toggle("off", !places.some((at) => this.onPath.has(at)));
    const isSelected = row.run === undefined && row.at === this.selected;
    element.setAttribute("aria-selected", String(isSelected));
  }

  // -- what the reader does ------------------------------------------------------------------------------------

  onClick(event) {
    const element = event.target.closest("[role=treeitem]");
    if (!element) return;
    this.current = Number(element.dataset.place);
    const row = this.rows[this.current];
    if (row.run || event.target.closest(".twist.can")) this.toggle(this.current);
    else this.choose(row.at);
    this.focus(this.current);
  }

  onKey(event) {
    const row = this.rows[this.current];
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.row) - 1);
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -this.rows.length, End: this.rows.length };
    if (event.ctrlKey || event.metaKey || event.altKey || !row) return;
    if (event.key in steps) this.focus(this.current + steps[event.key]);
    else if (event.key === "ArrowRight") {
      if (row.expanded === false) this.toggle(this.current);
      else if (row.expanded) this.focus(this.current + 1);
    } else if (event.key === "ArrowLeft") {
      if (row.expanded) this.toggle(this.current);
      else this.focus(this.parentOf(this.current));
    } else if (event.key === "Enter" || event.key === " ") {
      if (row.run) this.toggle(this.current);
      else this.choose(row.at);
    } else return;
    event.preventDefault();
  }

  parentOf(place) {
    for (let above = place - 1; above >= 0; above -= 1) if (this.rows[above].level < this.rows[place].level) return above;
    return place;
  }

  toggle(place) {
    const row = this.rows[place];
    if (row.run) this.open[row.expanded ? "delete" : "add"](row.at);
    else if (row.expanded !== undefined) this.closed[row.expanded ? "add" : "delete"](row.at);
    this.rebuild();
    this.focus(place);
  }

  focus(place) {
    const before = this.drawn.get(this.current);
    if (before) before.tabIndex = -1;
    this.current = Math.max(0, Math.min(this.rows.length - 1, place));
    this.scrollTo(this.current);
    this.draw();
    this.drawn.get(this.current).focus({ preventScroll: true });
  }

  scrollTo(place) {
    const top = place * this.row;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + this.row > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + this.row - this.box.clientHeight;
  }
}

const TINTS = {
  user: "tint-user",
  assistant: "tint-assistant",
  toolResult: "tint-tool",
  bashExecution: "tint-shell",
  system: "tint-shell",
  compaction: "tint-summary",
  branch_summary: "tint-summary",
  custom_message: "tint-user",
};

function tint(entry) {
  return TINTS[entry.kind === "message" ? entry.role : entry.kind] ?? "tint-other";
}
