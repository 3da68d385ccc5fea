// Reads of a PromQL expression what it names: metrics with their matchers, labels that it groups by, functions. It checks
// that brackets match and that it knows every word; it is no full parser and computes nothing.

export interface Selector {
  readonly metric: string;
  readonly matchers: readonly { readonly label: string; readonly op: string; readonly value: string }[];
}

export interface Named {
  readonly selectors: readonly Selector[];
  /** Labels of `by`, `without`, `on`, `ignoring`, `group_left` and `group_right`. */
  readonly labels: readonly string[];
  /** Labels that are left in the result: those of the first `by`; undefined where nothing is aggregated away. */
  readonly left: readonly string[] | undefined;
}

const GROUPING = new Set(['by', 'without', 'on', 'ignoring', 'group_left', 'group_right']);
const WORDS = new Set(['and', 'or', 'unless', 'bool', 'offset']);
const AGGREGATIONS = new Set(['sum', 'min', 'max', 'avg', 'count', 'topk', 'bottomk', 'quantile', 'stddev']);
const FUNCTIONS = new Set([
  'rate',
  'increase',
  'histogram_quantile',
  'vector',
  'scalar',
  'min_over_time',
  'max_over_time',
  'avg_over_time',
  'absent',
  'time',
  'clamp_max',
  'clamp_min',
]);

const TOKEN =
  /\s+|#[^\n]*|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\[[^\]]*\]|[A-Za-z_:][\w:]*|\d[\w.]*|=~|!~|!=|==|>=|<=|[^\s\w]/gy;

/** @throws Error naming what it does not understand */
export function readPromql(text: string): Named {
  const pieces = text.match(TOKEN) ?? [];
  if (pieces.join('') !== text) throw new Error(`cannot be read: ${text}`);
  const tokens = pieces.filter((piece) => !/^(\s|#)/.test(piece));
  const selectors: Selector[] = [];
  const labels: string[] = [];
  let left: readonly string[] | undefined;
  let isAggregated = false;
  let depth = 0;
  for (let at = 0; at < tokens.length; at += 1) {
    const token = tokens[at] ?? '';
    const next = tokens[at + 1];
    if (token === '(') depth += 1;
    else if (token === ')') {
      depth -= 1;
      if (depth < 0) throw new Error(`a bracket too many: ${text}`);
    } else if (token === '{') throw new Error(`a selector without a metric: ${text}`);
    else if (/^[A-Za-z_:]/.test(token)) {
      if (GROUPING.has(token)) {
        const end = tokens.indexOf(')', at);
        if (next !== '(' || end === -1) throw new Error(`${token} without labels: ${text}`);
        const named = tokens.slice(at + 2, end).filter((each) => each !== ',');
        labels.push(...named);
        if (token === 'by') left ??= named.filter((label) => label !== 'le');
        at = end;
      } else if (AGGREGATIONS.has(token)) {
        if (next !== '(' && next !== 'by' && next !== 'without')
          throw new Error(`${token} of nothing: ${text}`);
        isAggregated = true;
      } else if (WORDS.has(token)) {
        // Between two expressions.
      } else if (next === '(') {
        if (!FUNCTIONS.has(token)) throw new Error(`the function ${token} is unknown: ${text}`);
      } else {
        const { selector, end } = selectorAt(tokens, at, text);
        selectors.push(selector);
        at = end;
      }
    }
  }
  if (depth !== 0) throw new Error(`a bracket is open: ${text}`);
  return { selectors, labels, left: isAggregated ? (left ?? []) : undefined };
}

function selectorAt(
  tokens: readonly string[],
  at: number,
  text: string,
): { readonly selector: Selector; readonly end: number } {
  const metric = tokens[at] ?? '';
  if (tokens[at + 1] !== '{') return { selector: { metric, matchers: [] }, end: at };
  const end = tokens.indexOf('}', at);
  if (end === -1) throw new Error(`a selector is open: ${text}`);
  const inside = tokens.slice(at + 2, end).filter((each) => each !== ',');
  const matchers = [];
  for (let index = 0; index < inside.length; index += 3) {
    const [label = '', op = '', value = ''] = inside.slice(index, index + 3);
    if (!/^[a-z_]+$/.test(label) || !/^(=|!=|=~|!~)$/.test(op) || !/^["']/.test(value))
      throw new Error(`no matcher: ${label}${op}${value} in ${text}`);
    matchers.push({ label, op, value: value.slice(1, -1) });
  }
  return { selector: { metric, matchers }, end };
}
