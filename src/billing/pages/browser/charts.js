// @ts-check
// Draws the usage report: figures, limits, bar charts and a table. It shares one scope with account.js, which follows it in the
// same script. All text is set as text, never as HTML.

/**
 * @typedef {{ requests: number, failed: number, prompt_tokens: number, completion_tokens: number, cached_tokens: number, reasoning_tokens: number, cost?: number | null }} Sums
 * @typedef {Sums & { day: string, model: string }} DayRow
 * @typedef {{ scope?: 'key' | 'team' | 'model', model?: string, limit: string, max: number, used: number, remaining: number, resets_in_s?: number }} LimitState
 * @typedef {{ prefix: string, tier: string, standing: string, plan?: Plan, from: string, to: string, currency?: string, totals: Sums, days: DayRow[], truncated?: boolean, limits: LimitState[] }} UsageReport
 * @typedef {{ label: string, value: (row: DayRow) => number, isMoney?: boolean }} Measure
 */

/** Models beyond these share one colour. */
const SERIES = 5;
const TABLE_ROWS = 1000;
const SVG = 'http://www.w3.org/2000/svg';

/** @type {Record<string, string>} */
const LIMIT_NAMES = JSON.parse(at('limits').dataset['names'] ?? '{}');
/** The reader's conventions for numbers and dates; the words are English, and so are the digits. */
const { locale: LOCALE = 'en', dateLocale: DATE_LOCALE = 'en' } = at('report').dataset;
const latin = { numberingSystem: 'latn' };
const number = new Intl.NumberFormat(LOCALE, latin);
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const money = new Intl.NumberFormat(LOCALE, { ...latin, maximumSignificantDigits: 6 });
const date = new Intl.DateTimeFormat(DATE_LOCALE, { day: 'numeric', month: 'short', timeZone: 'UTC' });

/** @param {UsageReport} report */
// biome-ignore lint/correctness/noUnusedVariables: account.js calls it.
function draw({ prefix, tier, from, to, currency, totals, days, truncated, limits }) {
  namePrefix(prefix);
  at('tier').textContent = tier;
  const figures = [
    ['Requests', number.format(totals.requests)],
    ['Failed', number.format(totals.failed)],
    ['Tokens in', number.format(totals.prompt_tokens)],
    ['Tokens out', number.format(totals.completion_tokens)],
    ...(isPriced(totals) ? [[costName(currency), costText(totals)]] : []),
  ];
  at('totals').replaceChildren(
    ...figures.map(([name = '', value = '']) => node('div', {}, node('dt', {}, name), node('dd', {}, value))),
  );
  at('limits').replaceChildren(
    ...(limits.length === 0 ? [node('li', {}, 'This tier has no limits.')] : limits.map(gauge)),
  );
  const calendar = daysFrom(from, to);
  const models = modelsByUse(days);
  const tokens = (/** @type {DayRow} */ row) => row.prompt_tokens + row.completion_tokens;
  at('requests-chart').replaceChildren(
    ...chart({ label: 'requests', value: (row) => row.requests }, days, calendar, models),
  );
  at('tokens-chart').replaceChildren(...chart({ label: 'tokens', value: tokens }, days, calendar, models));
  at('cost').hidden = !days.some(isPriced);
  at('cost-title').textContent = `${costName(currency)} a day`;
  const cost = { label: currency ?? '', value: (/** @type {DayRow} */ row) => row.cost ?? 0, isMoney: true };
  at('cost-chart').replaceChildren(...(at('cost').hidden ? [] : chart(cost, days, calendar, models)));
  at('charts').hidden = days.length === 0;
  drawTable(days, { from, to, currency, isCut: truncated === true });
  at('report').hidden = false;
}

/** Whether anything had a price. @param {Sums} sums */
function isPriced({ cost }) {
  return typeof cost === 'number';
}

/** A dash where nothing had a price, which is not a cost of 0. @param {Sums} sums */
function costText({ cost }) {
  return typeof cost === 'number' ? money.format(cost) : '–';
}

/** @param {string | undefined} currency */
function costName(currency) {
  return currency === undefined ? 'Cost' : `Cost (${currency})`;
}

/** @param {string} prefix of the current key */
function namePrefix(prefix) {
  for (const id of ['prefix', 'confirm-prefix']) at(id).textContent = prefix;
}

/** @param {LimitState} state */
function gauge({ scope, model, limit, max, used, remaining, resets_in_s: resets }) {
  const amount = limit.startsWith('cost_') ? money : number;
  const whose = scope === undefined ? '' : scope === 'model' ? ` with ${model}` : ` of the ${scope}`;
  const share = max > 0 ? Math.min(1, Math.max(0, used / max)) : 1;
  const bar = svg('svg', { viewBox: '0 0 100 1', preserveAspectRatio: 'none', 'aria-hidden': 'true' });
  bar.append(svg('rect', { width: share * 100, height: 1 }));
  const renewal = resets === undefined || resets <= 0 || used <= 0 ? '' : `resets in ${span(resets)}`;
  const left =
    remaining > 0 ? `${amount.format(remaining)} left` : limit === 'concurrency' ? 'all in use' : 'used up';
  const head = node(
    'p',
    {},
    node('span', {}, `${LIMIT_NAMES[limit] ?? limit}${whose}`),
    node('strong', {}, left),
  );
  const count = node('span', {}, `${amount.format(used)} of ${amount.format(max)} used`);
  const foot = node('p', { class: 'soft' }, count, node('span', {}, renewal));
  return node('li', remaining > 0 ? {} : { class: 'full' }, head, bar, foot);
}

/**
 * A bar chart of one measure: a column for each day, stacked by model.
 * @param {Measure} measure @param {DayRow[]} rows @param {string[]} calendar @param {string[]} models
 */
function chart({ label, value, isMoney = false }, rows, calendar, models) {
  const shown = models.length > SERIES ? models.slice(0, SERIES - 1) : models;
  const series = (/** @type {string} */ model) => (shown.includes(model) ? shown.indexOf(model) : SERIES);
  /** @type {Map<string, DayRow[]>} */
  const byDay = Map.groupBy(rows, ({ day }) => day);
  const total = (/** @type {DayRow[]} */ some) => some.reduce((sum, row) => sum + value(row), 0);
  const text = isMoney ? money.format : number.format;
  const top = (isMoney ? niceAmount : niceTop)(
    Math.max(0, ...calendar.map((day) => total(byDay.get(day) ?? []))),
  );
  const peak = `${text(total(rows))} ${label} in ${calendar.length} days; the numbers are in the table below`;
  const plot = svg('svg', {
    viewBox: `0 0 ${calendar.length} 100`,
    preserveAspectRatio: 'none',
    role: 'img',
    'aria-label': peak,
  });
  calendar.forEach((day, index) => {
    const used = (byDay.get(day) ?? []).filter((row) => value(row) > 0);
    used.sort((one, other) => series(one.model) - series(other.model));
    const parts = used.map((row) => `${row.model}: ${text(value(row))}`);
    const column = svg('g', {});
    const title = [`${dayName(day)}: ${text(total(used))} ${label}`, ...(parts.length > 1 ? parts : [])];
    column.append(
      svg('title', {}, title.join('\n')),
      svg('rect', { class: 'hit', x: index, y: 0, width: 1, height: 100 }),
    );
    let floor = 100;
    for (const row of used) {
      const height = (value(row) / top) * 100;
      floor -= height;
      column.append(
        svg('rect', { class: `s${series(row.model)}`, x: index + 0.14, y: floor, width: 0.72, height }),
      );
    }
    plot.append(column);
  });
  const scale = [top, top / 2, 0].map((step) => node('span', {}, isMoney ? text(step) : short.format(step)));
  const ends = [calendar[0], calendar[Math.floor(calendar.length / 2)], calendar.at(-1)];
  const names = [
    ...shown.map((name, index) => ({ name, index })),
    ...(shown.length < models.length ? [{ name: 'other models', index: SERIES }] : []),
  ];
  const legend = names.map(({ name, index }) => node('li', {}, node('i', { class: `s${index}` }), name));
  const days = ends.map((day) => node('span', {}, dayName(day ?? '')));
  const axis = node('div', { class: 'scale', 'aria-hidden': 'true' }, ...scale);
  const below = node('div', { class: 'days', 'aria-hidden': 'true' }, ...days);
  return [node('div', { class: 'plot' }, axis, plot, below), node('ul', { class: 'legend' }, ...legend)];
}

/** @param {DayRow[]} rows @param {{ from: string, to: string, currency: string | undefined, isCut: boolean }} report cut by the gateway */
function drawTable(rows, { from, to, currency, isCut }) {
  const hasCost = rows.some(isPriced);
  /** @type {[string, (row: DayRow) => string][]} */
  const columns = [
    ['Model', (row) => row.model],
    ['Requests', (row) => number.format(row.requests)],
    ['Failed', (row) => number.format(row.failed)],
    ['Tokens in', (row) => number.format(row.prompt_tokens)],
    ['of these cached', (row) => number.format(row.cached_tokens)],
    ['Tokens out', (row) => number.format(row.completion_tokens)],
    ['of these reasoning', (row) => number.format(row.reasoning_tokens)],
  ];
  if (hasCost) columns.push([costName(currency), costText]);
  const latest = [...rows].sort((one, other) => other.day.localeCompare(one.day)).slice(0, TABLE_ROWS);
  const lines = latest.map((row) => {
    const cells = columns.map(([, text]) => node('td', {}, text(row)));
    return node('tr', {}, node('th', { scope: 'row' }, row.day), ...cells);
  });
  const heads = ['Day', ...columns.map(([name]) => name)].map((name) => node('th', { scope: 'col' }, name));
  const head = node('thead', {}, node('tr', {}, ...heads));
  at('table').replaceChildren(node('table', {}, head, node('tbody', {}, ...lines)));
  for (const id of ['table-fold', 'csv']) at(id).hidden = rows.length === 0;
  const cut =
    isCut || rows.length > TABLE_ROWS ? ' Some lines are not shown; the totals above include them.' : '';
  at('table-note').textContent =
    rows.length === 0
      ? 'No usage in this time. A request appears here and in charts some seconds after its end.'
      : `${dayName(from)} to ${dayName(to)}, days in UTC.${cut}`;
}

/** Most used first, so that a model has one colour in all charts. @param {DayRow[]} rows */
function modelsByUse(rows) {
  /** @type {Map<string, number>} */
  const uses = new Map();
  for (const { model, requests } of rows) uses.set(model, (uses.get(model) ?? 0) + requests);
  return [...uses].sort(([, one], [, other]) => other - one).map(([model]) => model);
}

/** @param {string} from @param {string} to `YYYY-MM-DD`, both included; at most a year */
function daysFrom(from, to) {
  const days = [];
  for (let at = Date.parse(from); at <= Date.parse(to) && days.length < 366; at += 86_400_000) {
    days.push(new Date(at).toISOString().slice(0, 10));
  }
  return days;
}

/** The next round number whose half is whole. @param {number} most */
function niceTop(most) {
  let unit = 1;
  while (unit * 10 < most) unit *= 10;
  const steps = unit === 1 ? [2, 4, 6, 8, 10] : [1.2, 1.6, 2, 3, 4, 6, 8, 10];
  return Math.round(unit * (steps.find((step) => step * unit >= most) ?? 10));
}

/** The same for amounts, which may be small. @param {number} most */
function niceAmount(most) {
  const scale = most > 0 ? 10 ** Math.max(0, 2 - Math.ceil(Math.log10(most))) : 1;
  return niceTop(most * scale) / scale;
}

/** @param {string} day */
function dayName(day) {
  return Number.isNaN(Date.parse(day)) ? day : date.format(new Date(day));
}

/** @param {number} seconds */
function span(seconds) {
  for (const [size, name] of /** @type {const} */ ([
    [86_400, 'day'],
    [3600, 'hour'],
    [60, 'minute'],
  ])) {
    const count = Math.round(seconds / size);
    if (seconds >= size * 1.5) return `${count} ${name}s`;
    if (seconds >= size) return `1 ${name}`;
  }
  return seconds > 1 ? `${Math.ceil(seconds)} seconds` : '1 second';
}

/**
 * @template {HTMLElement} [T=HTMLElement]
 * @param {string} id @param {new () => T} [kind]
 * @returns {T}
 */
function at(id, kind) {
  const found = document.getElementById(id);
  if (found instanceof (kind ?? HTMLElement)) return /** @type {T} */ (found);
  throw new TypeError(`the page has no ${id}`);
}

/** @param {string} tag @param {Record<string, string>} attributes @param {(Node | string)[]} children */
function node(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** @param {string} tag @param {Record<string, string | number>} attributes @param {string[]} text */
function svg(tag, attributes, ...text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...text);
  return made;
}
