// The map of a session: its branches as a drawing, along the depth of their entries. The tree has all of it for those
// who do not use a mouse.

const MOST_BRANCHES = 240;
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
    this.branches = branchesOf(session);
    // The largest ones; a branch is never larger than the one it left, so none of these lacks its parent.
    const kept = [...this.branches].sort((one, other) => other.size - one.size || one.number - other.number);
    this.kept = new Set(kept.slice(0, MOST_BRANCHES).map((branch) => branch.number));
    for (const branch of this.branches) if (session.active.has(branch.first)) this.kept.add(branch.number);
    this.layOut();
  }

  layOut() {
    const width = Math.max(240, this.box.clientWidth - 4);
    if (width === this.width || !this.branches.length) return;
    this.width = width;
    const shown = this.branches.filter((branch) => this.kept.has(branch.number));
    const root = d3.stratify()
      .id((branch) => String(branch.number))
      .parentId((branch) => (branch.number === -1 ? undefined : String(branch.parent ?? -1)))([{ number: -1 }, ...shown]);
    d3.tree().nodeSize([LANE, 1])(root);
    const nodes = root.descendants().slice(1);
    const top = Math.min(...nodes.map((node) => node.x));
    const height = Math.max(...nodes.map((node) => node.x)) - top + 2 * LANE;
    let deepest = 1;
    for (const node of nodes) deepest = Math.max(deepest, this.session.depth[node.data.last]);
    const across = (at) => 12 + (this.session.depth[at] / deepest) * (width - 28);
    const drawing = makeShape("svg", {
      width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `Map of ${counted(this.session.leaves.length, "branch", "branches")}`,
    });
    this.links = [];
    const marks = [];
    for (const node of nodes) {
      const branch = node.data;
      const y = node.x - top + LANE;
      const from = node.parent.data.number === -1 ? undefined : node.parent;
      const start = from ? across(from.data.last) : across(branch.first);
      const startY = from ? from.x - top + LANE : y;
      const bend = Math.min(start + 10, across(branch.last));
      const link = makeShape("path", {
        d: `M${start},${startY} C${bend},${startY} ${start},${y} ${bend},${y} H${across(branch.last)}`,
      });
      this.links.push({ link, branch });
      drawing.append(link);
      for (let at = branch.last; ; at = this.session.entries[at].parent) {
        if (this.session.entries[at].kind === "compaction") marks.push(this.mark("compaction", across(at), y, at));
        if (at === branch.first) break;
      }
      const isLeaf = !this.session.children.has(branch.last);
      const isActive = this.session.leaf === branch.last;
      marks.push(this.mark(isActive ? "leaf active" : isLeaf ? "leaf" : "fork", across(branch.last), y, branch.last));
    }
    drawing.append(...marks);
    const missing = this.branches.length - shown.length;
    this.box.replaceChildren(drawing);
    if (missing) this.box.append(make("p", { class: "muted", text: `${counted(missing, "small branch", "small branches")} not drawn` }));
    this.paint();
  }

  mark(kind, x, y, at) {
    const mark = kind === "compaction"
      ? makeShape("path", { d: `M${x - 5},${y} L${x},${y - 5} L${x + 5},${y} L${x},${y + 5} Z`, class: kind })
      : makeShape("circle", { cx: x, cy: y, r: kind === "fork" ? 3 : 5, class: kind });
    const title = makeShape("title", {});
    const entry = this.session.entries[at];
    title.textContent = `${entry.name}: ${entry.line}`;
    mark.append(title);
    mark.addEventListener("click", () => this.choose(at));
    return mark;
  }

  select(path) {
    this.path = path;
    this.paint();
  }

  paint() {
    const on = new Set(this.path);
    for (const { link, branch } of this.links ?? []) link.setAttribute("class", on.has(branch.first) ? "on" : "");
  }
}
