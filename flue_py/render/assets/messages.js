// Messages, one below the other. Long texts are cut until asked for, and of long lists the middle is.

const LONGEST_TEXT = 1500;
const MOST_LINES = 24;
const FIRST = 15;
const LAST = 25;
const MORE = 100;

function messageList(session, places, { seen, choose, note }) {
  const list = make("ol", { class: "messages" });
  const item = (at) => messageElement(session, at, { isSeen: !seen || seen.has(at), choose, note });
  if (places.length <= FIRST + LAST + 5) {
    list.append(...places.map(item));
    return list;
  }
  let from = FIRST;
  const until = places.length - LAST;
  const gap = make("li", { class: "gap" });
  const show = (count) => {
    const next = Math.min(until, from + count);
    const isLast = next === until;
    const added = places.slice(from, next).map(item);
    gap.before(...added);
    from = next;
    if (isLast) gap.remove();
    else fill();
    added[0].querySelector("button").focus();
  };
  const fill = () => {
    gap.replaceChildren(
      make("span", { text: `${counted(until - from, "message")} between` }),
      ...(until - from > MORE ? [make("button", { type: "button", text: `Show ${MORE}`, on: { click: () => show(MORE) } })] : []),
      make("button", { type: "button", class: "all", text: "Show all", on: { click: () => show(until - from) } }),
    );
  };
  fill();
  list.append(...places.slice(0, FIRST).map(item), gap, ...places.slice(until).map(item));
  return list;
}

function messageElement(session, at, { isSeen, choose, note }) {
  const entry = session.entries[at];
  const head = make("header", {},
    make("span", { class: `name ${tint(entry)}`, text: entry.name }),
    entry.agent ? make("bdi", { class: "badge", text: entry.agent }) : null,
    note && !isSeen ? make("span", { class: "badge unseen", text: note }) : null,
    make("button", {
      type: "button", class: "id", text: entry.id, title: "Select this entry", dir: "auto", on: { click: () => choose(at) },
    }),
    make("span", { class: "size", text: entry.tokens ? counted(entry.tokens, "token") : "" }),
  );
  const item = make("li", { class: `message ${tint(entry)}${isSeen ? "" : " unseen"}`, "data-entry": entry.id }, head);
  item.append(...entry.parts.map(([kind, text]) => partElement(kind, text)));
  if (!entry.parts.length) item.append(make("p", { class: "muted", text: "(nothing said)" }));
  return item;
}

const PART_NAMES = { thinking: "thinks", call: "calls", error: "error", media: "attachment", json: "data" };

function partElement(kind, text) {
  const made = make("div", { class: `part ${kind}` });
  if (kind in PART_NAMES) made.append(make("span", { class: "part-name", text: PART_NAMES[kind] }));
  made.append(longText(text));
  return made;
}

function longText(text) {
  const body = make("div", { class: "text", dir: "auto" });
  const cut = cutOf(text);
  body.textContent = cut < text.length ? text.slice(0, cut) : text;
  if (cut === text.length) return body;
  const more = make("button", { type: "button", class: "more", text: `Show all ${number(text.length)} characters` });
  more.setAttribute("aria-expanded", "false");
  more.addEventListener("click", () => {
    const isOpen = more.getAttribute("aria-expanded") === "true";
    more.setAttribute("aria-expanded", String(!isOpen));
    more.textContent = isOpen ? `Show all ${number(text.length)} characters` : "Show less";
    body.textContent = isOpen ? text.slice(0, cut) : text;
  });
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
