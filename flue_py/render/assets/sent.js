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

// Tokens, and of how many messages; a dash if of none.
function movedText([count, tokens]) {
  return count ? `${number(tokens)} (${number(count)})` : "—";
}

// Of each step what went in, what it cut, left out and added, and what went on. What it adds is of no entry.
function stepsOf(sent) {
  // Of a long session the page shows some, and counts all.
  const changes = (sent.all ?? sent.changed).flatMap((each) => each.changes);
  const movedBy = (some) => [some.length, some.reduce((sum, change) => sum + change.tokensBefore - change.tokensAfter, 0)];
  let tokens = sent.tokensBefore;
  // A step that is asked for twice is one here: changes have its name alone.
  const steps = new Map();
  for (const step of sent.steps) {
    const first = steps.get(step.name) ?? { ...step, changes: 0, tokensFreed: 0 };
    steps.set(step.name, { ...first, changes: first.changes + step.changes, tokensFreed: first.tokensFreed + step.tokensFreed });
  }
  return [...steps.values()].map((step) => {
    const own = changes.filter((change) => change.step === step.name);
    const out = movedBy(own.filter(({ how }) => how === "dropped"));
    const cut = movedBy(own.filter(({ how }) => how !== "dropped"));
    const added = [step.changes - own.length, cut[1] + out[1] - step.tokensFreed];
    const before = tokens;
    tokens -= step.tokensFreed;
    return { ...step, before, cut, out, added, after: tokens };
  });
}

function stepsElement(sent) {
  if (!sent.steps.length) return make("p", { class: "muted", text: "No step is asked for." });
  const rows = stepsOf(sent).map((step) => [
    step.name, ...[number(step.before), ...[step.cut, step.out, step.added].map(movedText), number(step.after)].map(numeric), step.reason,
  ]);
  const headings = ["Step", ...["In", "Cut", "Out", "Added", "Sent on"].map(numeric), "Why"];
  return make("div", {}, make("p", { class: "muted", text: "Tokens, and in brackets of how many messages." }),
    make("div", { class: "scroll" }, table(headings, rows)));
}

// The changed entries and the repaired ones, in the order of the page; repairs of no entry come last.
function changedOf(sent) {
  const reasons = new Map(sent.steps.map(({ name, reason }) => [name, reason]));
  const whyOf = ({ step, into }) => [`${step}: ${reasons.get(step)}`, ...(into === null ? [] : [`its content is in the message of ${into}`])];
  const explained = sent.changed.map(({ changes, ...each }) => ({ ...each, why: changes.flatMap(whyOf), ...beforeAndAfter(changes) }));
  const repairs = sent.repairs.map(({ at, what }) => ({ at, how: "repaired", why: [what] }));
  const last = Number.MAX_SAFE_INTEGER;
  return [...explained.filter((each) => each.how !== "repaired"), ...repairs].sort((a, b) => (a.at ?? last) - (b.at ?? last));
}

// How large an entry was and is; nothing if it counts with another one.
function beforeAndAfter(changes) {
  const last = changes.at(-1);
  return last && last.into === null ? { before: changes[0].tokensBefore, after: last.tokensAfter } : {};
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
