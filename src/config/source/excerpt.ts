// Draws the faulty line with a caret below the position and all credentials masked. visible-text.ts decides what is visible; text
// outside visible spans is masked except for punctuation.
import type { Shown } from '../schema/field-kinds.ts';
import type { VisibleSpan } from './visible-text.ts';

const MASK = '****';
const NAME = '[A-Za-z_][A-Za-z0-9_]*';
const REFERENCE = `\\$\\{${NAME}\\}`;
const WIDTH = 120;

/** A text with its line starts, to convert offsets to lines. */
export class SourceText {
  readonly text: string;
  readonly #starts: number[] = [0];

  constructor(text: string) {
    this.text = text;
    for (let at = text.indexOf('\n'); at !== -1; at = text.indexOf('\n', at + 1)) this.#starts.push(at + 1);
  }

  /** @returns line and column from 1, and the offsets of the line without its end */
  locate(offset: number): { line: number; column: number; start: number; end: number } {
    const at = Math.max(0, Math.min(offset, this.text.length));
    const low = this.#starts.findLastIndex((each) => each <= at);
    const start = this.#starts[low] ?? 0;
    let end = this.#starts[low + 1] === undefined ? this.text.length : (this.#starts[low + 1] ?? 1) - 1;
    if (end > start && this.text[end - 1] === '\r') end -= 1;
    return { line: low + 1, column: at - start + 1, start, end };
  }
}

/** Masks a credential except for its quotes and plain references, which are variable names. */
function maskCredential(text: string): string {
  const [, quote = '', inner = text] = /^(["'])(.*)\1$/s.exec(text) ?? [];
  const masked = inner
    .split(new RegExp(`((?<!\\$)${REFERENCE})`))
    .map((part, index) => (index % 2 === 1 ? part : part.replace(/\S(.*\S)?/s, MASK)))
    .join('');
  return quote + masked + quote;
}

const URL_FORM = new RegExp(
  `^(["']?)(https?|rediss?|postgres|postgresql)://([^\\s@/?#]*@)?((?:[A-Za-z0-9.-]|${REFERENCE})+|\\[[0-9a-fA-F:.]+\\])(:\\d{1,5}|:${REFERENCE})?(/[^\\s?#@]*)?(\\?[^]*)?$`,
);

/** Masks user, password and query of a URL; any other text is masked completely. */
function maskUrl(text: string): string {
  if (/^(["']?)sqlite:[^@?]*$/.test(text)) return text;
  const match = URL_FORM.exec(text);
  if (match === null) return maskCredential(text);
  const [, quote = '', scheme = '', user, host = '', port = '', path = '', query] = match;
  const shown = `${quote}${scheme}://${user === undefined ? '' : `${maskCredential(user.slice(0, -1))}@`}${host}${port}${path}`;
  return query === undefined ? shown : `${shown}?${MASK}${quote}`;
}

/** Masks text with a `:` inside: after a missing comma or line break it may contain another field, such as a credential. */
const maskPlain = (text: string): string => (/\s\S*:/.test(text) ? maskCredential(text) : text);

const SHOW: Readonly<Record<Shown, (text: string) => string>> = {
  plain: maskPlain,
  short: (text) => (text.length > 16 ? maskCredential(text) : maskPlain(text)),
  url: maskUrl,
  never: maskCredential,
};

const PUNCTUATION = new Set(' \t[]{},:"\'');

/** Text outside all spans: comments, values of duplicate keys, text of a file that is not YAML. */
function drawLoose(text: string, words: ReadonlySet<string>): string {
  let out = '';
  for (const [token] of text.matchAll(
    new RegExp(`${REFERENCE}|[ \\t\\[\\]{},:"']|[^ \\t\\[\\]{},:"']+`, 'g'),
  )) {
    const harmless =
      PUNCTUATION.has(token) ||
      /^[-|>?]+$/.test(token) ||
      words.has(token) ||
      new RegExp(`^${REFERENCE}$`).test(token);
    out += harmless ? token : MASK;
  }
  return out;
}

/** Start of a comment in text outside spans; the text's length without a comment. */
function commentAt(text: string): number {
  const at = /(^|[ \t])#/.exec(text);
  return at === null ? text.length : at.index + (at[1] ?? '').length;
}

/**
 * @param at offset of the fault
 * @param spans the visible spans, in order
 * @param words the words visible outside spans: none, or the field names if the file is not YAML
 * @returns the line with a caret below it; empty for an empty line
 */
export function drawExcerpt(
  source: SourceText,
  at: number,
  spans: readonly VisibleSpan[],
  words: ReadonlySet<string>,
): string {
  const { start, end } = source.locate(at);
  const target = Math.max(start, Math.min(at, end));
  let out = '';
  let caret = -1;
  const put = (from: number, to: number, drawn: string): void => {
    if (caret === -1 && target >= from && target < to) {
      caret = out.length + (drawn.length === to - from ? target - from : 0);
    }
    out += drawn;
  };
  let from = start;
  const loose = (to: number): void => {
    const stop = from + commentAt(source.text.slice(from, to));
    // In two pieces, split at the fault, so that the caret stays below it.
    const cut = target > from && target < stop ? target : stop;
    put(from, cut, drawLoose(source.text.slice(from, cut), words));
    put(cut, stop, drawLoose(source.text.slice(cut, stop), words));
  };
  for (const span of spans) {
    if (span.end <= from) continue;
    if (span.start >= end) break;
    if (span.start > from) loose(span.start);
    const [low, high] = [Math.max(span.start, from), Math.min(span.end, end)];
    const text = source.text.slice(low, high);
    const whole = low === span.start && high === span.end;
    put(low, high, whole ? SHOW[span.shown](text) : maskCredential(text));
    from = high;
  }
  if (from < end) loose(end);
  if (caret === -1) caret = out.length;
  return window(out.trimEnd().replace(/[^\P{C}\t]/gu, '?'), caret);
}

/** At most WIDTH characters around the caret. */
function window(line: string, caret: number): string {
  const begin = caret > WIDTH - 20 ? caret - WIDTH / 2 : 0;
  const shown = line.slice(begin, begin + WIDTH);
  if (shown.trim() === '') return '';
  const prefix = begin > 0 ? '…' : '';
  const suffix = begin + WIDTH < line.length ? '…' : '';
  const pad = shown.slice(0, caret - begin).replace(/[^\t]/g, ' ');
  return `${prefix}${shown.trimEnd()}${suffix}\n${prefix === '' ? '' : ' '}${pad}^`;
}
