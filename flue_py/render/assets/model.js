// What follows from a session's entries: children, branches, paths, contexts. No projection rule is known here: an entry
// whose context is not its parent's plus, where `seen`, itself, brings its own along.

const NOTHING = [];

// Makes whole entries of the rows of the data: `at` is in seconds, and in a row since the entry before; the parent is that
// one, if the row does not name another.
function unpack(session) {
  let seconds = 0;
  session.entries = session.entries.map((row, place) => {
    seconds += row.at;
    const parent = row.parent === undefined ? place - 1 : row.parent;
    return { ...session.sorts[row.sort], ...row, at: seconds, parent: parent === null || parent < 0 ? undefined : parent };
  });
}

function prepare(session) {
  const entries = session.entries;
  const children = new Map();
  session.roots = [];
  session.depth = new Int32Array(entries.length);
  entries.forEach((entry, at) => {
    if (entry.parent === undefined) session.roots.push(at);
    else {
      if (!children.has(entry.parent)) children.set(entry.parent, []);
      children.get(entry.parent).push(at);
      session.depth[at] = session.depth[entry.parent] + 1;
    }
  });
  session.children = children;
  session.below = new Int32Array(entries.length).fill(1);
  for (let at = entries.length - 1; at >= 0; at -= 1) {
    if (entries[at].parent !== undefined) session.below[entries[at].parent] += session.below[at];
  }
  session.active = new Set(session.leaf === null ? NOTHING : pathOf(session, session.leaf));
  // Which child the main line of a branch follows: the active one, else the one with most below it.
  session.main = new Map();
  session.sides = 0;
  for (const [parent, found] of children) {
    let best = found[0];
    for (const child of found) if (session.below[child] > session.below[best]) best = child;
    session.main.set(parent, found.find((child) => session.active.has(child)) ?? best);
    session.sides += found.length - 1;
  }
  session.leaves = entries.map((_, at) => at).filter((at) => !children.has(at));
  const dayOf = (entry) => Math.floor(entry.at / 86400);
  session.isOneDay = entries.every((entry) => dayOf(entry) === dayOf(entries[0]));
  session.isPaid = entries.some((entry) => entry.paid);
  session.tokens = entries.reduce((sum, entry) => sum + (entry.tokens ?? 0), 0);
  return session;
}

const LINE_LENGTH = 160;
// As Python's `str.split` and its categories of characters have them.
const BLANKS = /[\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/g;
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]/gu;

// An entry in a line. It is left out of the data where it is the beginning of the first part, as `one_line` makes it.
function lineOf(entry) {
  if (entry.line === undefined) {
    const marks = [entry.tool, entry.parts[0][2] ?? (entry.failed && "failed")].filter(Boolean);
    const said = (marks.length ? `[${marks.join(", ")}] ` : "") + entry.parts[0][1];
    const text = said.slice(0, 1600).replace(BLANKS, " ").replace(/^ | $/g, "").slice(0, 400).replace(UNPRINTABLE, "\ufffd");
    entry.line = text.length <= LINE_LENGTH ? text : `${text.slice(0, LINE_LENGTH - 1).trimEnd()}…`;
  }
  return entry.line;
}

// A part as a text. JSON comes without blanks: it is put in lines when somebody reads it or looks for something.
function textOf(part) {
  const [kind, text] = part;
  if (kind === "json") part.text ??= indented(text);
  return part.text ?? text;
}

// Compact JSON in lines. Numbers stay as they are written, since scripts round large ones.
function indented(text) {
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  return text.replace(/"[^"\\]*(?:\\.[^"\\]*)*"|\{\}|\[\]|[{}[\],:]/gs, (token) => {
    if (token === "{" || token === "[") depth += 1;
    else if (token === "}" || token === "]") {
      depth -= 1;
      return line() + token;
    }
    return token === ":" ? ": " : token === "," || token === "{" || token === "[" ? token + line() : token;
  });
}

function childrenOf(session, at) {
  return session.children.get(at) ?? NOTHING;
}

function pathOf(session, at) {
  const path = [];
  for (let here = at; here !== undefined; here = session.entries[here].parent) path.push(here);
  return path.reverse();
}

// The path to an entry, and on from there to the end of its main line.
function branchOf(session, at) {
  const branch = pathOf(session, at);
  for (let here = session.main.get(at); here !== undefined; here = session.main.get(here)) branch.push(here);
  return branch;
}

// Of an entry that cannot be read nobody knows when it was made.
function isDamaged(entry) {
  return entry.kind === "damaged entry";
}

// When an entry was made (UTC).
function whenOf(entry) {
  if (isDamaged(entry)) return "—";
  return new Date(entry.at * 1000).toISOString().slice(0, 19).replace("T", " ");
}

// The same to the minute; without the day where all entries are of the same one.
function timeOf(session, entry) {
  return isDamaged(entry) ? "—" : whenOf(entry).slice(session.isOneDay ? 11 : 5, 16);
}

// The context at an entry, as places. `before` counts what of it is not on the page: null until the page has asked.
function contextOf(session, at) {
  const added = [];
  added.before = 0;
  let here = at;
  while (here !== undefined && session.entries[here].context === undefined) {
    if (session.entries[here].seen) added.push(here);
    here = session.entries[here].parent;
  }
  added.reverse();
  if (here === undefined) return added;
  const { context: stretches, before = 0, seen } = session.entries[here];
  const begun = [];
  for (const [first, last] of stretches ?? (seen ? [[here, here]] : NOTHING)) {
    for (let each = first; each <= last; each += 1) begun.push(each);
  }
  return Object.assign(begun.concat(added), { before: stretches ? before : null });
}

function lengthOf(context) {
  return context.before === null ? "…" : number(context.length + context.before);
}

// How many entries lie above an entry and outside of the page.
function outsideOf(session, path) {
  return path.length ? session.entries[path[0]].outside?.[1] ?? 0 : 0;
}

function tokensOf(session, places) {
  return places.reduce((sum, at) => sum + (session.entries[at].tokens ?? 0), 0);
}

// Main lines, each from where it left another one to its leaf: the nodes of the map. Parents come before children.
function linesOf(session) {
  const lines = [];
  const waiting = session.roots.map((first) => ({ first })).reverse();
  while (waiting.length) {
    const line = { ...waiting.pop(), number: lines.length };
    lines.push(line);
    for (let at = line.first; at !== undefined; at = session.main.get(at)) {
      line.last = at;
      for (const side of childrenOf(session, at)) {
        if (side !== session.main.get(at)) waiting.push({ first: side, from: at, parent: line.number });
      }
    }
  }
  return lines;
}
