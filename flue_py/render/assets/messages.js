// Messages, one below the other. Long texts are cut until asked for, and of long lists what is far from the ends and
// from the selected entry is left out until asked for.

const LONGEST_TEXT = 1500;
const MOST_LINES = 24;
const FIRST = 15;
const LAST = 25;
const AROUND = 12;
const SMALLEST_GAP = 6;
const MORE = 100;

// `seen` are the places that are in the context (all, where it is left out), `how` is passed on to each message.
function messageList(session, places, { chosen, ...how }) {
  const item = (at) => messageElement(session, at, { ...how, isChosen: at === chosen });
  const list = make("ol", { class: "messages" });
  let from = 0;
  for (const [first, last] of shownOf(places.length, places.indexOf(chosen))) {
    if (first > from) list.append(gapElement(places.slice(from, first), item));
    list.append(...places.slice(first, last).map(item));
    from = last;
  }
  return list;
}

// Which stretches of so many messages are shown: both ends, and what is around the chosen one.
function shownOf(count, chosen) {
  const wanted = [[0, FIRST], [count - LAST, count]];
  if (chosen >= 0) wanted.push([chosen - AROUND, chosen + AROUND + 1]);
  wanted.sort((one, other) => one[0] - other[0]);
  const shown = [];
  for (const [first, last] of wanted.map(([start, end]) => [Math.max(0, start), Math.min(count, end)])) {
    const before = shown.at(-1);
    if (before && first - before[1] < SMALLEST_GAP) before[1] = Math.max(before[1], last);
    else shown.push([first, last]);
  }
  return shown;
}

function gapElement(places, item) {
  const gap = make("li", { class: "gap" });
  let left = places;
  const show = (count) => {
    const added = left.slice(0, count).map(item);
    left = left.slice(count);
    gap.before(...added);
    if (left.length) fill();
    else gap.remove();
    added[0].querySelector("button").focus();
  };
  const fill = () => {
    gap.replaceChildren(
      make("span", { text: `${counted(left.length, "message")} between` }),
      ...(left.length > MORE ? [make("button", { type: "button", text: `Show ${MORE}`, on: { click: () => show(MORE) } })] : []),
      make("button", { type: "button", class: "all", text: "Show all", on: { click: () => show(left.length) } }),
    );
  };
  fill();
  return gap;
}

function messageElement(session, at, { seen, note, choose, isChosen, ...how }) {
  const entry = session.entries[at];
  const isSeen = !seen || seen.has(at);
  const head = make("header", {},
    make("span", { class: `name ${tint(entry)}`, text: entry.name, title: entry.name }),
    entry.agent ? make("bdi", { class: "badge", text: entry.agent }) : null,
    note && !isSeen ? make("span", { class: "badge unseen", text: note }) : null,
    make("button", {
      type: "button", class: "id", text: entry.id, title: "Select this entry", dir: "auto", on: { click: () => choose(at) },
    }),
    make("span", { class: "figures" },
      make("time", { class: "time", text: timeOf(session, entry), title: `${whenOf(entry)} UTC` }),
      entry.tokens ? make("span", { class: "size", text: `size ${number(entry.tokens)}`, title: "how many tokens of a context it takes" }) : null,
      entry.paid ? make("span", { class: "cost", text: moneyText(entry.paid), title: costTitle(entry) }) : null),
  );
  const item = make("li", {
    class: `message ${tint(entry)}${isSeen ? "" : " unseen"}${isChosen ? " chosen" : ""}`,
    "data-entry": entry.id, "aria-current": isChosen ? "true" : undefined,
  }, head);
  const isMarkdown = MARKDOWN_SAID.has(entry.kind === "message" ? entry.role : entry.kind);
  item.append(...entry.parts.map((part) => partElement(part, { isMarkdown, ...how })));
  if (!entry.parts.length) item.append(make("p", { class: "muted", text: "(nothing said)" }));
  return item;
}

const MARKDOWN_SAID = new Set(["user", "assistant", "compaction", "branch_summary", "custom_message"]);
const PART_NAMES = { thinking: "thinks", call: "calls", error: "error", media: "attachment", json: "data", data: "data" };

function costTitle({ usage, paid }) {
  const tokens = usage ? `: ${usageText(usage)}` : "";
  return paid[1] ? counted(paid[1], "call") + tokens : "what it used was not said";
}

function usageText([input, output, read, write]) {
  return `${known(input)} input, ${known(output)} output, ${known(read)} cache read, ${known(write)} cache write`;
}

// A part is what it is, its text, and its heading: the tool of a call, what a diff changes, how a command ended. `isRaw`
// shows it as it is written; where `wanted`, a text that is looked for, lies behind the cut, and with `isWhole`, the
// whole text is shown.
function partElement(part, { isMarkdown = false, isRaw = false, ...how } = {}) {
  const kind = part[0];
  const text = textOf(part);
  const made = make("div", { class: `part part-${kind}` });
  if (kind === "diff") return diffElement(made, text, part[2], how);
  if (kind === "media" && part[2] !== undefined) return pictureElement(made, text, data.pictures[part[2]]);
  if (kind === "program") return programElement(text, part[2], how);
  if (kind in PART_NAMES) made.append(make("span", { class: "part-name", text: PART_NAMES[kind] }));
  if (part[2] !== undefined) made.append(" ", make("bdi", { class: "tool", text: part[2] }));
  const isDrawn = (kind === "text" || kind === "thinking") && isMarkdown && !isRaw;
  if (text) made.append(longText(text, isDrawn ? markdownText : plainText, how));
  return made;
}

// What a program put into a message of the user is folded, unless a text is looked for that is in it.
function programElement(text, name, how) {
  const isOpen = Boolean(how.wanted) && text.toLowerCase().includes(how.wanted);
  return make("details", { class: "part part-program", open: isOpen ? "" : undefined },
    make("summary", { text: name }), longText(text, plainText, how));
}

// A picture, of a type that its bytes have. One that cannot be decoded is named.
function pictureElement(made, name, [type, base64, width, height]) {
  const image = make("img", { alt: name, title: name, width, height, src: `data:${type};base64,${base64}` });
  image.addEventListener("error", () => made.replaceChildren(plainText(make("div", { class: "text" }), `${name}, cannot be shown`)));
  made.append(image);
  return made;
}

function plainText(body, text) {
  body.textContent = text;
  return body;
}

function markdownText(body, text) {
  const isShort = text.length <= LONGEST_MARKDOWN;
  body.classList.toggle("md", isShort);
  if (isShort) body.replaceChildren(markdownNodes(text));
  else body.textContent = text;
}

const DIFF_TAGS = { "+": "ins", "-": "del", "@": "b" };

function diffText(body, text) {
  body.classList.add("diff-text");
  body.replaceChildren(...text.split("\n").map((line) => make(DIFF_TAGS[line[0]] ?? "span", { text: `${line}\n`, dir: "ltr" })));
}

function diffElement(made, text, heading, how) {
  const lines = text.split("\n");
  const count = (sign) => lines.filter((line) => line[0] === sign).length;
  const at = heading.indexOf(" ");
  made.append(make("p", { class: "diff-head" },
    make("span", { class: "part-name", text: "edits" }), " ",
    make("bdi", { class: "tool", text: heading.slice(0, at) }), " ",
    make("bdi", { class: "path", text: heading.slice(at + 1) }), " ",
    make("ins", { text: `+${number(count("+"))}` }), " ",
    make("del", { text: `−${number(count("-"))}` })));
  made.append(longText(text, diffText, how));
  return made;
}

function longText(text, draw, { wanted = "", isWhole = false }) {
  const body = make("div", { class: "text", dir: "auto" });
  const cut = isWhole ? text.length : cutOf(text);
  if (cut === text.length) {
    draw(body, text);
    return body;
  }
  const more = make("button", { type: "button", class: "more" });
  const set = (isOpen) => {
    more.setAttribute("aria-expanded", String(isOpen));
    more.textContent = isOpen ? "Show less" : `Show all ${number(text.length)} characters`;
    draw(body, isOpen ? text : text.slice(0, cut));
  };
  more.addEventListener("click", () => set(more.getAttribute("aria-expanded") === "false"));
  set(Boolean(wanted) && text.toLowerCase().indexOf(wanted) + wanted.length > cut);
  return make("div", { class: "long" }, body, more);
}

// Where to cut a text, between two characters that belong to one sign neither.
function cutOf(text) {
  let cut = Math.min(text.length, LONGEST_TEXT);
  let lineEnd = -1;
  for (let line = 0; line < MOST_LINES; line += 1) {
    lineEnd = text.indexOf("\n", lineEnd + 1);
    if (lineEnd === -1 || lineEnd >= cut) break;
    if (line === MOST_LINES - 1) cut = lineEnd;
  }
  if (text.length - cut < 80) return text.length;
  const code = text.charCodeAt(cut - 1);
  return code >= 0xd800 && code < 0xdc00 ? cut - 1 : cut;
}
