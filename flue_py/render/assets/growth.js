// The chart: what each agent was sent, turn by turn, with compactions and thresholds.

const MODES = [
  {
    name: "Input per turn",
    note: "Tokens sent to the model in each turn (input, cache read and cache write), along the active path.",
    value: (turn) => turn[1] + turn[2] + turn[3],
  },
  {
    name: "Cumulative input",
    note: "Tokens sent since the last compaction, summed turn by turn, along the active path.",
    value: (turn) => turn[5],
  },
  {
    name: "Cost",
    note: "What the active path cost up to each turn, as far as it is known, in US dollars; the tasks are not in it.",
    value: (turn, costs) => costs.get(turn[0]),
    text: (amount) => dollars(amount * PICODOLLARS),
  },
];

// What the path of a line's session cost up to each entry, in dollars; null where nothing of it is known.
function costsOf({ session }) {
  const { entries, leaf } = sessions[session];
  const sum = [0, 0, 0, 0];
  return new Map(pathOf(sessions[session], leaf).map((at) => {
    entries[at].paid?.forEach((amount, place) => { sum[place] += amount; });
    return [at, sum[0] || !(sum[2] + sum[3]) ? sum[0] / PICODOLLARS : null];
  }));
}
const COLORS = 6;

class GrowthChart {
  constructor(choose) {
    this.choose = choose;
    this.mode = 0;
    this.box = byId("chart");
    this.box.setAttribute("role", "img");
    this.box.setAttribute("aria-label", `Input tokens over the turns of ${counted(data.growth.length, "agent")}; the table below has the figures`);
    const buttons = MODES.map((mode, place) => make("button", {
      type: "button", text: mode.name, "aria-pressed": String(place === 0), on: { click: () => this.setMode(place) },
    }));
    byId("growth-modes").append(...buttons);
    const figures = byId("turns").parentElement;
    figures.addEventListener("toggle", () => figures.open && !byId("turns").childElementCount && this.fill());
    this.draw();
    new ResizeObserver(() => this.chart && this.chart.setSize(this.size())).observe(this.box);
  }

  setMode(mode) {
    this.mode = mode;
    [...byId("growth-modes").children].forEach((each, place) => each.setAttribute("aria-pressed", String(place === mode)));
    this.draw();
  }

  size() {
    return { width: Math.max(260, this.box.clientWidth), height: 280 };
  }

  color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  draw() {
    byId("growth-note").textContent = MODES[this.mode].note;
    if (this.chart) this.chart.destroy();
    this.chart = undefined;
    if (!data.growth.length) {
      this.box.replaceChildren(make("p", { class: "muted", text: "No answer on the active path reports its usage." }));
      return;
    }
    const longest = Math.max(...data.growth.map((line) => line.turns.length));
    const turns = Array.from({ length: longest }, (_, place) => place + 1);
    const { value, text = short } = MODES[this.mode];
    this.lines = data.growth.map((line) => {
      const costs = costsOf(line);
      return line.turns.map((turn) => value(turn, costs));
    });
    const lines = this.lines.map((line) => turns.map((_, place) => line[place] ?? null));
    const series = data.growth.map((line, place) => ({
      label: line.agent, stroke: this.color(`--line-${place % COLORS}`), width: 2,
      dash: place < COLORS ? undefined : [6, 3], points: { show: longest < 80, size: 5 }, spanGaps: false,
    }));
    const limits = this.mode < 2 ? this.thresholds() : NOTHING;
    const top = lines.reduce((most, line) => line.reduce((each, point) => Math.max(each, point ?? 0), most), this.mode < 2 ? 1 : 0.0001);
    const axis = { stroke: this.color("--muted"), grid: { stroke: this.color("--grid"), width: 1 }, ticks: { show: false } };
    this.box.replaceChildren();
    this.chart = new uPlot({
      ...this.size(),
      legend: { show: false },
      scales: {
        x: { time: false, range: [0.5, longest + 0.5] },
        y: { range: [0, 1.08 * limits.reduce((most, limit) => Math.max(most, limit.at), top)] },
      },
      axes: [
        { ...axis, label: undefined, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000], size: 34 },
        { ...axis, values: (_, ticks) => ticks.map((tick) => text(tick)), size: 54 },
      ],
      series: [{ label: "turn" }, ...series],
      cursor: { y: false, focus: { prox: 40 }, points: { size: 8 } },
      focus: { alpha: 0.35 },
      hooks: { draw: [(chart) => this.drawMarks(chart, limits)], setCursor: [(chart) => this.tell(chart)] },
    }, [turns, ...lines], this.box);
    this.chart.over.addEventListener("click", () => this.onClick());
    this.drawLegend(limits);
  }

  thresholds() {
    return [
      { at: data.warnAt, name: "warn at", color: this.color("--warn"), swatch: "warn" },
      { at: data.cutoverAt, name: "cut over at", color: this.color("--cutover"), swatch: "cutover" },
    ].filter((limit) => limit.at > 0);
  }

  drawMarks(chart, limits) {
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.lineWidth = devicePixelRatio;
    const line = (color, x1, y1, x2, y2) => {
      ctx.strokeStyle = color;
      ctx.beginPath();
      ctx.moveTo(x1, y1);
      ctx.lineTo(x2, y2);
      ctx.stroke();
    };
    const drawn = new Set();
    for (const { compactions } of data.growth) {
      for (const [after] of compactions) {
        if (drawn.has(after)) continue;
        drawn.add(after);
        const x = Math.round(chart.valToPos(after + 0.5, "x", true)) + (devicePixelRatio % 2) / 2;
        line(this.color("--muted"), x, bbox.top, x, bbox.top + bbox.height);
        ctx.fillStyle = this.color("--muted");
        ctx.fillText("⚡ compact", x + 4 * devicePixelRatio, bbox.top + 12 * devicePixelRatio);
      }
    }
    ctx.lineWidth = 2 * devicePixelRatio;
    for (const limit of limits) {
      const y = Math.round(chart.valToPos(limit.at, "y", true));
      line(limit.color, bbox.left, y, bbox.left + bbox.width, y);
    }
    ctx.restore();
  }

  drawLegend(limits) {
    const items = data.growth.map((line, place) => {
      const swatch = make("span", { class: "swatch", "aria-hidden": "true" });
      swatch.style.backgroundColor = this.color(`--line-${place % COLORS}`);
      return make("li", {}, swatch, make("bdi", { text: line.agent }),
        make("span", { class: "muted", text: ` ${counted(line.turns.length, "turn")}` }));
    });
    const compactions = new Set(data.growth.flatMap((line) => line.compactions.map(([, entry]) => `${line.session}/${entry}`)));
    if (compactions.size) {
      const swatch = make("span", { class: "swatch dashed", "aria-hidden": "true" });
      items.push(make("li", {}, swatch, counted(compactions.size, "compaction")));
    }
    for (const limit of limits) {
      items.push(make("li", {}, make("span", { class: `swatch dashed ${limit.swatch}`, "aria-hidden": "true" }),
        `${limit.name} ${number(limit.at)}`));
    }
    byId("chart-legend").replaceChildren(...items);
  }

  tell(chart) {
    const tip = byId("chart-tip");
    const place = chart.cursor.idx;
    const lines = data.growth.filter((line) => place !== null && place !== undefined && place < line.turns.length);
    tip.hidden = lines.length === 0;
    tip.replaceChildren(...lines.slice(0, 8).map((line) => {
      const [, input, read, write, output, cumulative] = line.turns[place];
      return make("span", { class: "tip-line" }, make("bdi", { text: line.agent }),
        ` turn ${number(place + 1)}: in ${number(input + read + write)}, out ${known(output)}, cumulative ${number(cumulative)}`);
    }));
  }

  // The turn under the cursor, of the line nearest to it.
  onClick() {
    const { idx, top } = this.chart.cursor;
    if (idx === null || idx === undefined) return;
    let best;
    data.growth.forEach((line, place) => {
      if (idx >= line.turns.length) return;
      const distance = Math.abs(this.chart.valToPos(this.lines[place][idx], "y") - top);
      if (!best || distance < best.distance) best = { distance, line };
    });
    if (best) this.choose(best.line.session, best.line.turns[idx][0]);
  }

  // Fills the table: its first rows, or all of them.
  fill(isWhole = false) {
    const rows = [];
    for (const line of data.growth) {
      let done = 0;
      const compactedAt = (turns) => {
        for (; done < line.compactions.length && line.compactions[done][0] <= turns; done += 1) {
          const text = `compacted at ${number(line.compactions[done][2])} tokens`;
          rows.push([line.agent, numeric("—"), text, ...Array(4).fill(numeric(""))]);
        }
      };
      line.turns.forEach(([entry, ...figures], place) => {
        compactedAt(place);
        const turn = { ...numeric(number(place + 1)), choose: () => this.choose(line.session, entry) };
        rows.push([line.agent, turn, ...figures.map((figure) => numeric(known(figure)))]);
      });
      compactedAt(line.turns.length);
    }
    const most = isWhole ? rows.length : 2000;
    byId("turns").replaceChildren(table(
      ["Agent", numeric("Turn"), numeric("Input"), numeric("Cache read"), numeric("Cache write"), numeric("Output"), numeric("Cumulative")],
      rows.slice(0, most)));
    if (rows.length > most) byId("turns").append(make("p", { class: "muted", text: `The first ${number(most)} of ${number(rows.length)} rows.` }));
  }
}
