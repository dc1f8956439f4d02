// The map of a session: its branches as a drawing, along the depth of their entries. The tree has all of it for those
// who do not use a mouse.

const MOST_LINES_DRAWN = 240;
const MOST_MARKS = 400;
const LANE = 16;

class BranchMap {
  constructor(box, choose) {
    this.box = box;
    this.choose = choose;
    new ResizeObserver(() => this.session && this.layOut()).observe(box);
  }

  show(session) {
    this.session = session;
    this.path = [];
    this.width = 0;
    this.lines = linesOf(session);
    // The largest ones; a line is never larger than the one it left, so none of these lacks its parent.
    const bySize = [...this.lines].sort(
      (one, other) => session.below[other.first] - session.below[one.first] || one.number - other.number);
    const kept = new Set(bySize.slice(0, MOST_LINES_DRAWN).map((line) => line.number));
    this.shown = this.lines.filter((line) => kept.has(line.number));
    this.box.hidden = !this.lines.length;
    this.layOut();
  }

  layOut() {
    const width = Math.max(240, this.box.clientWidth - 4);
    if (width === this.width || !this.shown.length) return;
    this.width = width;
    const { session } = this;
    const root = d3.stratify()
      .id((line) => String(line.number))
      .parentId((line) => (line.number === -1 ? undefined : String(line.parent ?? -1)))([{ number: -1 }, ...this.shown]);
    // What leaves a line last takes the lane next to it, so that links do not cross.
    root.sort((one, other) => session.depth[other.data.first] - session.depth[one.data.first]);
    this.lanes = this.lanesOf(root);
    const deepest = Math.max(1, ...this.shown.map((line) => session.depth[line.last]));
    this.across = (at) => 12 + (session.depth[at] / deepest) * (width - 28);
    this.down = (line) => LANE * 0.75 + this.lanes.get(line.number) * LANE;
    const height = (Math.max(...this.shown.map((line) => this.lanes.get(line.number))) + 1) * LANE + LANE / 2;
    this.drawing = makeShape("svg", {
      width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `Map of ${counted(this.lines.length, "branch", "branches")}`,
    });
    for (const line of this.shown) this.drawing.append(this.link(line, line.last));
    this.overlay = makeShape("g", {});
    this.drawing.append(this.overlay, ...this.marks());
    const missing = this.lines.length - this.shown.length;
    this.box.replaceChildren(this.drawing);
    if (missing) this.box.append(make("p", { class: "muted", text: `${counted(missing, "small branch", "small branches")} not drawn` }));
    this.paint();
  }

  // Which lane each line is drawn in: the next one below where it left that is free as far as it goes.
  lanesOf(root) {
    const lanes = new Map([[-1, -1]]);
    const taken = [];
    root.eachBefore((node) => {
      const line = node.data;
      if (line.number === -1) return;
      const from = line.from === undefined ? 0 : this.session.depth[line.from];
      const to = this.session.depth[line.last];
      let lane = lanes.get(node.parent.data.number) + 1;
      while ((taken[lane] ?? NOTHING).some((other) => from <= other.to && other.from <= to)) lane += 1;
      (taken[lane] ??= []).push({ from, to });
      lanes.set(line.number, lane);
    });
    return lanes;
  }

  link(line, until) {
    const end = this.across(until);
    const y = this.down(line);
    if (line.from === undefined) return makeShape("path", { d: `M${this.across(line.first)},${y} H${end}` });
    const start = this.across(line.from);
    const above = this.down(this.lines[line.parent]);
    const bend = Math.min(start + 12, end);
    return makeShape("path", { d: `M${start},${above} C${bend},${above} ${start},${y} ${bend},${y} H${end}` });
  }

  marks() {
    const { session } = this;
    const forks = new Map();
    for (const line of this.shown) if (line.from !== undefined) forks.set(line.from, this.lines[line.parent]);
    const marks = [...forks].map(([at, line]) => this.mark("fork", at, line));
    const ends = this.shown.map((line) => this.mark(session.leaf === line.last ? "leaf active" : "leaf", line.last, line));
    const compactions = [];
    for (const line of this.shown) {
      for (let at = line.first; at !== undefined && compactions.length < MOST_MARKS; at = session.main.get(at)) {
        if (session.entries[at].kind === "compaction") compactions.push(this.mark("compaction", at, line));
      }
    }
    if (session.leaf !== null && childrenOf(session, session.leaf).length) {
      const line = this.shown.find((each) => session.active.has(each.last) || this.holds(each, session.leaf));
      if (line) ends.push(this.mark("leaf active", session.leaf, line));
    }
    return [...marks, ...ends, ...compactions];
  }

  holds(line, wanted) {
    for (let at = line.first; at !== undefined; at = this.session.main.get(at)) if (at === wanted) return true;
    return false;
  }

  mark(kind, at, line) {
    const [x, y] = [this.across(at), this.down(line)];
    const mark = kind === "compaction"
      ? makeShape("path", { d: `M${x - 5},${y} L${x},${y - 5} L${x + 5},${y} L${x},${y + 5} Z`, class: kind })
      : makeShape("circle", { cx: x, cy: y, r: kind === "fork" ? 3 : 5, class: kind });
    const entry = this.session.entries[at];
    const title = makeShape("title", {});
    title.textContent = `${entry.name}: ${entry.line}`;
    mark.append(title);
    mark.addEventListener("click", () => this.choose(at));
    return mark;
  }

  select(path) {
    this.path = path;
    this.paint();
  }

  // Draws the selected path over its lines.
  paint() {
    if (!this.overlay) return;
    const drawn = [];
    const on = new Set(this.path);
    for (const line of this.shown) {
      if (!on.has(line.first)) continue;
      let until = line.first;
      while (on.has(this.session.main.get(until))) until = this.session.main.get(until);
      const link = this.link(line, until);
      link.setAttribute("class", "on");
      drawn.push(link);
      if (until === this.path.at(-1)) {
        drawn.push(makeShape("circle", { cx: this.across(until), cy: this.down(line), r: 7.5, class: "chosen" }));
      }
    }
    this.overlay.replaceChildren(...drawn);
  }
}
