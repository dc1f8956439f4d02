// Messages as Markdown. markdown-it reads it, with HTML off; the elements are made here, of the kinds below and no
// others, and what they say is set as text.

const markdown = markdownit({ html: false, linkify: true, breaks: true });
markdown.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
const SAFE_LINK = /^(?:https?:\/\/|mailto:)/i;
markdown.validateLink = (link) => SAFE_LINK.test(link);

// What is longer is shown as it is written: nobody reads it, and reading it takes time.
const LONGEST_MARKDOWN = 30_000;
const MADE_AS = {
  p: "p", blockquote: "blockquote", ul: "ul", ol: "ol", li: "li", strong: "strong", em: "em", s: "s",
  table: "table", thead: "thead", tbody: "tbody", tr: "tr", th: "th", td: "td",
  h1: "h4", h2: "h4", h3: "h5", h4: "h5", h5: "h6", h6: "h6",
};

function markdownNodes(text) {
  const root = document.createDocumentFragment();
  putTokens(markdown.parse(text, {}), root);
  return root;
}

function putTokens(tokens, root) {
  const open = [root];
  for (const token of tokens) {
    const here = open.at(-1);
    if (token.type === "inline") putTokens(token.children, here);
    else if (token.hidden) continue;
    else if (token.nesting === 1) {
      const element = openedBy(token);
      here.append(token.tag === "table" ? make("div", { class: "wide" }, element) : element);
      open.push(element);
    } else if (token.nesting === -1) open.pop();
    else here.append(leafOf(token));
  }
}

function openedBy(token) {
  if (token.tag === "a") return linkTo(token.attrGet("href") ?? "");
  const tag = MADE_AS[token.tag];
  if (tag === undefined) return make("span");
  const isInline = tag === "strong" || tag === "em" || tag === "s";
  const start = tag === "ol" ? token.attrGet("start") : undefined;
  const align = /text-align:(\w+)/.exec(token.attrGet("style") ?? "")?.[1];
  return make(tag, { dir: isInline ? undefined : "auto", start, class: align && `to-${align}` });
}

// Where it leads is told beside what it says.
function linkTo(address) {
  if (!SAFE_LINK.test(address)) return make("span");
  return make("a", { href: address, title: address, target: "_blank", rel: "noopener noreferrer nofollow" });
}

function leafOf(token) {
  if (token.type === "fence" || token.type === "code_block") {
    const language = token.info.trim().split(/\s+/)[0];
    return make("pre", { "data-language": language || undefined, dir: "auto" }, make("code", { text: token.content.replace(/\n$/, "") }));
  }
  if (token.type === "code_inline") return make("code", { text: token.content });
  if (token.type === "softbreak" || token.type === "hardbreak") return make("br");
  if (token.type === "hr") return make("hr");
  // A picture would be asked for: it is named.
  if (token.type === "image") {
    return make("span", { class: "picture", title: token.attrGet("src"), text: `picture: ${token.content || token.attrGet("src")}` });
  }
  return document.createTextNode(token.content);
}
