// What an agent is sent of the session at its leaf: what each step did, and what became of each entry.

function sentElement(session, choose) {
  const sent = session.sent;
  const about = sent.isEstimate ? "about " : "";
  const forWhom = [sent.agent && `for ${sent.agent}`, sent.target && `as ${sent.target} takes it`].filter(Boolean).join(", ");
  const made = make("div", { class: "sent" });
  made.append(make("p", { dir: "auto", text: `${sent.isAsked ? "Here" : "At the leaf"}${forWhom && `, ${forWhom}`}: ${about}${number(sent.tokensBefore)} tokens in the context, `
    + `${number(sent.tokensSent)} of them sent (counted by ${sent.counter}).` }));
  for (const event of sent.events) made.append(make("p", { class: "muted", dir: "auto", text: `${event.name}: ${event.text}` }));
  for (const broken of sent.broken) made.append(make("p", { class: "refused", dir: "auto", text: `It is refused: ${broken}` }));
  made.append(make("h3", { text: "What each step did" }), stepsElement(sent));
  made.append(make("h3", { text: "What is not sent as it is" }));
  const changed = changedOf(sent);
  if (!changed.length) made.append(make("p", { class: "muted", text: "Nothing: all of the context is sent as it is." }));
  else made.append(make("ul", { class: "changed" }, ...changed.map((each) => changedElement(session, each, choose))));
  return made;
}

function stepsElement(sent) {
  if (!sent.steps.length) return make("p", { class: "muted", text: "No step is asked for." });
  const rows = sent.steps.map((step) => make("tr", {},
    make("td", { text: step.name, title: step.reason, dir: "auto" }),
    make("td", { class: "number", text: number(step.changes) }),
    make("td", { class: "number", text: number(step.tokensFreed) })));
  const head = make("tr", {}, ...["step", "messages changed", "tokens freed"].map((text) => make("th", { scope: "col", text })));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

// The changed entries and the repaired ones, in the order of the page; repairs of no entry come last.
function changedOf(sent) {
  const repairs = sent.repairs.map(({ at, what }) => ({ at, how: "repaired", why: [what] }));
  const last = Number.MAX_SAFE_INTEGER;
  return [...sent.changed.filter((each) => each.how !== "repaired"), ...repairs].sort((a, b) => (a.at ?? last) - (b.at ?? last));
}

function changedElement(session, { at, how, why, before, after }, choose) {
  const sizes = before === undefined ? "" : how === "out" ? `, ${number(before)} tokens` : `, ${number(before)} to ${number(after)} tokens`;
  const made = make("li", {});
  made.append(at === null ? "the request" : entryLink(session, at, choose), ` ${how}${sizes}`);
  if (why.length) made.append(make("span", { class: "muted", dir: "auto", text: ` ${why.join("; ")}` }));
  return made;
}

// How an entry is marked in the tree; undefined for one that is sent as it is.
function sentBadge(session, at) {
  if (!session.sent) return undefined;
  session.sentAt ??= new Map(session.sent.changed.map((each) => [each.at, each]));
  return session.sentAt.get(at)?.how;
}
