// Printing: the whole tree, every entry of every session with all of its text, and what is folded on the screen.

function startPrinting(chart) {
  const root = document.documentElement;
  let undo;
  const set = (isPrinting) => {
    if (isPrinting === (undo !== undefined)) return;
    if (!isPrinting) {
      undo();
      undo = undefined;
      return;
    }
    const [theme, top] = [root.dataset.theme, byId("tree-box").scrollTop];
    const folded = [...document.querySelectorAll("main details:not([open])")];
    const show = (isWhole, colors) => {
      tree.isWhole = isWhole;
      tree.rebuild();
      chart.fill(isWhole);
      for (const each of folded) each.open = isWhole;
      root.dataset.theme = colors;
      chart.draw();
    };
    undo = () => {
      byId("printed").replaceChildren();
      show(false, theme);
      byId("tree-box").scrollTop = top;
    };
    show(true, "light");
    for (const session of sessions) printSession(session.children ? session : prepare(session));
  };
  addEventListener("beforeprint", () => set(true));
  addEventListener("afterprint", () => set(false));
  // Not every browser tells of printing by the same event.
  matchMedia("print").addEventListener("change", (event) => set(event.matches));
}

function printSession(session) {
  const list = make("ol", { class: "messages" });
  session.entries.forEach((entry, at) => {
    const item = messageElement(session, at, { isWhole: true });
    if (entry.compaction) item.append(compactionElement(session, at));
    list.append(item);
  });
  byId("printed").append(make("h2", { text: session.name, dir: "auto" }), list);
}
