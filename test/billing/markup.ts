// A strict parser for our pages: it reports malformed, unlabelled and forbidden HTML. It knows only the HTML that these pages
// use.

export interface Element {
  readonly tag: string;
  readonly attributes: ReadonlyMap<string, string>;
  /** All text within, of its children too, with references resolved. */
  text: string;
}

export interface Page {
  readonly elements: readonly Element[];
  readonly faults: readonly string[];
}

const VOID = new Set(['meta', 'link', 'input', 'br', 'hr', 'img']);
const RAW = new Set(['style', 'script', 'title']);
const KNOWN = new Set(
  (
    'html head meta title link style script body header nav main footer section h1 h2 h3 h4 p a ul li dl dt dd pre code strong ' +
    'small span form label input button div details summary dialog noscript select option'
  ).split(' '),
);
/** Pages are found beside each other, wherever they are published. */
const OWN = /^(pricing|account|checkout|data:,)$/;
const ATTRIBUTE = /^\s+([a-z-]+)(?:="([^"<]*)")?/;

/** Parses a whole document and checks it. */
export function readPage(text: string): Page {
  const faults: string[] = [];
  const elements: Element[] = [];
  const open: Element[] = [];
  if (!text.startsWith('<!doctype html>\n')) faults.push('no doctype');
  let at = text.indexOf('\n') + 1;
  while (at < text.length) {
    if (text[at] !== '<') {
      const end = text.indexOf('<', at);
      const piece = text.slice(at, end === -1 ? text.length : end);
      if (/&(?!#\d+;)/.test(piece)) faults.push(`a bare & in ${JSON.stringify(piece)}`);
      for (const element of open) element.text += resolve(piece);
      at += piece.length;
      continue;
    }
    const closing = /^<\/([a-z0-9]+)>/.exec(text.slice(at, at + 40));
    if (closing !== null) {
      const [whole, tag] = closing;
      const last = open.pop();
      if (last?.tag !== tag) faults.push(`</${tag}> closes <${last?.tag ?? 'nothing'}>`);
      at += whole.length;
      continue;
    }
    const opening = readTag(text, at);
    if (opening === undefined) {
      faults.push(`not a tag: ${JSON.stringify(text.slice(at, at + 40))}`);
      at += 1;
      continue;
    }
    const { element } = opening;
    at = opening.end;
    elements.push(element);
    if (!KNOWN.has(element.tag)) faults.push(`<${element.tag}> has no place here`);
    if (VOID.has(element.tag)) continue;
    if (RAW.has(element.tag)) {
      const end = text.indexOf(`</${element.tag}>`, at);
      element.text = resolve(text.slice(at, end));
      at = end + element.tag.length + 3;
    } else open.push(element);
  }
  if (open.length > 0) faults.push(`not closed: ${open.map(({ tag }) => tag).join(', ')}`);
  return { elements, faults: [...faults, ...meaningFaults(elements)] };
}

function readTag(text: string, at: number): { element: Element; end: number } | undefined {
  const name = /^<([a-z][a-z0-9]*)/.exec(text.slice(at, at + 20));
  if (name === null) return undefined;
  const [begin, tag = ''] = name;
  const attributes = new Map<string, string>();
  let end = at + begin.length;
  for (;;) {
    const attribute = ATTRIBUTE.exec(text.slice(end, end + 2000));
    if (attribute === null) break;
    const [whole, key = '', value = ''] = attribute;
    attributes.set(key, resolve(value));
    end += whole.length;
  }
  return text[end] === '>' ? { element: { tag, attributes, text: '' }, end: end + 1 } : undefined;
}

/** What must be so for people who do not see the page, and for a policy that allows nothing. */
function meaningFaults(elements: readonly Element[]): string[] {
  const faults: string[] = [];
  const ids = elements.flatMap(({ attributes }) => attributes.get('id') ?? []);
  for (const id of new Set(ids)) {
    if (ids.filter((other) => other === id).length > 1) faults.push(`the id ${id} is there twice`);
  }
  const count = (wanted: string): number => elements.filter(({ tag }) => tag === wanted).length;
  for (const tag of ['html', 'title', 'main', 'h1']) if (count(tag) !== 1) faults.push(`not one <${tag}>`);
  let level = 0;
  for (const { tag, attributes, text } of elements) {
    for (const name of ['aria-labelledby', 'aria-describedby', 'for']) {
      for (const target of attributes.get(name)?.split(' ') ?? []) {
        if (!ids.includes(target)) faults.push(`${name} leads to no ${target}`);
      }
    }
    if (attributes.get('id') === '') faults.push(`<${tag}> has an empty id`);
    const heading = /^h([1-6])$/.exec(tag)?.[1];
    if (heading !== undefined) {
      if (Number(heading) > level + 1) faults.push(`<${tag}> after <h${level}>`);
      level = Number(heading);
    }
    if (tag === 'script' && attributes.has('src')) faults.push('a script that would have to be loaded');
    if (/^(h\d|button|a|summary|title)$/.test(tag) && text.trim() === '') faults.push(`<${tag}> has no name`);
    const hasLabel = attributes.has('aria-labelledby') || attributes.has('aria-label');
    if (tag === 'pre' && attributes.get('tabindex') === '0' && !hasLabel) {
      faults.push('a box in the order of tabs has no name');
    }
    for (const name of attributes.keys()) {
      if (name === 'style' || name.startsWith('on')) faults.push(`<${tag} ${name}> is against the policy`);
    }
    for (const name of ['href', 'src', 'action']) {
      const url = attributes.get(name);
      const isLink = tag === 'a' && name === 'href';
      if (url !== undefined && !OWN.test(url) && !(isLink && /^(mailto:|https?:\/\/|#[\w-]+$)/.test(url)))
        faults.push(`${name} leads elsewhere: ${url}`);
    }
  }
  return faults;
}

function resolve(text: string): string {
  return text.replaceAll(/&#(\d+);/g, (_, code: string) => String.fromCharCode(Number(code)));
}
