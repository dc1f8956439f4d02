// The map of a session: its branches as a drawing, along the depth of their entries. The tree has all of it for those
// who do not use a mouse.

const MOST_MARKS = 400;
// How high the drawing may be, and how high a lane is where there is room, and where there is little.
const HEIGHT = 216;
const LANE = 16;
const SMALLEST_LANE = 9;
const MOST_LANES = Math.floor(HEIGHT / SMALLEST_LANE) - 1;
const MOST_LINES_DRAWN = 240;

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
    // A line is never larger than the one it left, so of the largest ones none lacks its parent.
    this.bySize = [...this.lines].sort(
      (one, other) => session.below[other.first] - session.below[one.first] || one.number - other.number);
    this.lineOf = new Map();
    for (const line of this.lines) for (let at = line.first; at !== undefined; at = session.main.get(at)) this.lineOf.set(at, line);
    this.wanted = [];
    this.fit();
    this.box.hidden = !this.lines.length;
    this.layOut();
  }

  // Chooses the lines that are drawn: the largest ones, as many as the lanes allow, and those of the selected path.
  fit() {
    for (let count = Math.min(MOST_LINES_DRAWN, this.lines.length); ; count = Math.floor(count * 0.8)) {
      const kept = new Set([...this.bySize.slice(0, Math.max(1, count)), ...this.wanted].map((line) => line.number));
      this.shown = this.lines.filter((line) => kept.has(line.number));
      this.lanes = this.shown.length ? this.lanesOf(this.shown) : new Map();
      this.laneCount = Math.max(0, ...this.lanes.values()) + 1;
      if (this.laneCount <= MOST_LANES || count < 2) return;
    }
  }

  layOut() {
    const width = Math.max(240, this.box.clientWidth - 4);
    if (width === this.width || !this.shown.length) return;
    this.width = width;
    const { session } = this;
    const lane = Math.max(SMALLEST_LANE, Math.min(LANE, HEIGHT / this.laneCount));
    this.scale = lane / LANE;
    const deepest = Math.max(1, ...this.shown.map((line) => session.depth[line.last]));
    this.across = (at) => 12 + (session.depth[at] / deepest) * (width - 28);
    this.down = (line) => LANE * 0.75 + this.lanes.get(line.number) * lane;
    const height = this.laneCount * lane + LANE / 2;
    this.drawing = makeShape("svg", {
      width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `Map of ${counted(this.lines.length, "branch", "branches")}`,
    });
    const missing = this.lines.filter((line) => !this.lanes.has(line.number));
    this.drawing.append(...this.stubs(missing));
    for (const line of this.shown) this.drawing.append(this.link(line, line.last));
    this.overlay = makeShape("g", {});
    this.drawing.append(this.overlay, ...this.marks());
    this.box.replaceChildren(this.drawing);
    if (missing.length) {
      this.box.append(make("p", {
        class: "muted", text: `${number(this.shown.length)} of ${number(this.lines.length)} branches drawn, the others as ticks; the tree has all of them`,
      }));
    }
    this.paint();
  }

  // Short ticks where the lines that are not drawn left one that is; those next to each other are one.
  stubs(missing) {
    const places = new Map();
    for (const line of missing) {
      if (line.from === undefined || !this.lanes.has(line.parent)) continue;
      const [x, y] = [this.across(line.from), this.down(this.lines[line.parent])];
      const key = `${Math.round(x / 4)} ${y}`;
      places.set(key, { x, y, count: (places.get(key)?.count ?? 0) + 1, line });
    }
    return [...places.values()].map(({ x, y, count, line }) => {
      const tick = makeShape("path", { d: `M${x},${y} l3,${Math.min(6, 6 * this.scale)}`, class: "stub" });
      const title = makeShape("title", {});
      title.textContent = count === 1 ? lineOf(this.session.entries[line.first]) : `${number(count)} branches`;
      tick.append(title);
      return tick;
    });
  }

  // Which lane each line is drawn in: the next one below where it left that is free as far as it goes.
  lanesOf(shown) {
    const { session } = this;
    const root = d3.stratify()
      .id((line) => String(line.number))
      .parentId((line) => (line.number === -1 ? undefined : String(line.parent ?? -1)))([{ number: -1 }, ...shown]);
    // What leaves a line last takes the lane next to it, so that links do not cross.
    root.sort((one, other) => session.depth[other.data.first] - session.depth[one.data.first]);
    const lanes = new Map([[-1, -1]]);
    const taken = [];
    root.eachBefore((node) => {
      const line = node.data;
      if (line.number === -1) return;
      const from = line.from === undefined ? 0 : session.depth[line.from];
      const to = session.depth[line.last];
      let lane = lanes.get(node.parent.data.number) + 1;
      while ((taken[lane] ?? NOTHING).some((other) => from <= other.to && other.from <= to)) lane += 1;
      (taken[lane] ??= []).push({ from, to });
      lanes.set(line.number, lane);
    });
    lanes.delete(-1);
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
      const line = this.lineOf.get(session.leaf);
      if (this.lanes.has(line.number)) ends.push(this.mark("leaf active", session.leaf, line));
    }
    return [...marks, ...ends, ...compactions];
  }

  mark(kind, at, line) {
    const [x, y] = [this.across(at), this.down(line)];
    const size = (kind === "fork" ? 3 : 5) * this.scale;
    const mark = kind === "compaction"
      ? makeShape("path", { d: `M${x - size},${y} l${size},${-size} l${size},${size} l${-size},${size} Z`, class: kind })
      : makeShape("circle", { cx: x, cy: y, r: size, class: kind });
    const entry = this.session.entries[at];
    const title = makeShape("title", {});
    title.textContent = `${entry.name}: ${lineOf(entry)}`;
    mark.append(title);
    mark.addEventListener("click", () => this.choose(at));
    return mark;
  }

  // A branch too small to be drawn is drawn while an entry of it is selected.
  select(path) {
    this.path = path;
    const lines = [...new Set(path.map((at) => this.lineOf.get(at)))];
    const isDrawn = lines.every((line) => this.lanes.has(line.number));
    if (!isDrawn && lines.length <= MOST_LINES_DRAWN) {
      this.wanted = lines;
      this.fit();
      this.width = 0;
      this.layOut();
    } else this.paint();
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
        drawn.push(makeShape("circle", { cx: this.across(until), cy: this.down(line), r: 7.5 * Math.max(0.8, this.scale), class: "chosen" }));
      }
    }
    this.overlay.replaceChildren(...drawn);
  }
}
