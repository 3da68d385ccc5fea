// Records as HTML: values, lists of facts, tables, and the forms that change them.
import { randomUUID } from 'node:crypto';
import { type Html, html, NOTHING } from '../../billing/pages/page-frame.ts';
import { etagOf } from '../api/record-etag.ts';
import { CSRF_FIELD, requireRole } from '../console-identity.ts';
import type { ConsoleRequest } from '../console-page.ts';
import { faultyField } from './form-rejection.ts';

const NUMBER = { maximumFractionDigits: 6 };
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d/;

/** A value of a record: `–` for none, times to the minute in UTC. */
export function shown(value: unknown): Html {
  if (value === null || value === undefined || value === '') return html`–`;
  if (typeof value === 'number') return html`${value.toLocaleString('en-US', NUMBER)}`;
  if (typeof value === 'boolean') return html`${value ? 'yes' : 'no'}`;
  if (typeof value === 'string') {
    if (!TIME.test(value)) return html`${value}`;
    return html`<time datetime="${value}">${value.slice(0, 16).replace('T', ' ')}</time>`;
  }
  if (Array.isArray(value)) return html`${value.length === 0 ? '–' : value.map(textOf).join(', ')}`;
  const entries = Object.entries(value).filter(([, each]) => each !== null);
  return html`${entries.length === 0 ? '–' : entries.map(([name, each]) => `${name}=${textOf(each)}`).join(', ')}`;
}

function textOf(value: unknown): string {
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** `created_at` → `Created at` */
export function titleOf(name: string): string {
  const words = name.replaceAll('_', ' ');
  return `${words.slice(0, 1).toUpperCase()}${words.slice(1)}`;
}

export function member(record: object, name: string): unknown {
  return Reflect.get(record, name);
}

/** A member that is a list of records; empty where it is none. */
export function listOf(record: object, name: string): readonly object[] {
  const list = member(record, name);
  return Array.isArray(list) ? list : [];
}

/** A column: the name of a member, or the name and what its cell has. */
export type Column = string | readonly [name: string, cell: (record: object) => Html];

/** A table that scrolls within its card. Tells where it is empty. */
export function table(caption: string, columns: readonly Column[], records: readonly object[]): Html {
  if (records.length === 0) return html`<p class="soft">${caption}: none.</p>`;
  const heads = columns.map((column) => {
    const isNumber = typeof column === 'string' && typeof member(records[0] ?? {}, column) === 'number';
    return html`<th scope="col"${isNumber ? html` class="number"` : NOTHING}>${titleOf(nameOf(column))}</th>`;
  });
  const rows = records.map((record) => html`<tr>${columns.map((column) => cell(column, record))}</tr>`);
  return html`<div class="scroll" tabindex="0" role="group" aria-label="${caption}"><table class="records">
<caption class="unseen">${caption}</caption><thead><tr>${heads}</tr></thead><tbody>${rows}</tbody></table></div>`;
}

const nameOf = (column: Column): string => (typeof column === 'string' ? column : column[0]);

function cell(column: Column, record: object): Html {
  if (typeof column !== 'string') return html`<td>${column[1](record)}</td>`;
  const value = member(record, column);
  return typeof value === 'number'
    ? html`<td class="number">${shown(value)}</td>`
    : html`<td>${shown(value)}</td>`;
}

/** A link to the page of a record. */
export function link(path: string, id: unknown, text: unknown = id): Html {
  return id === null || id === undefined
    ? html`–`
    : html`<a href="${path}/${encodeURIComponent(String(id))}">${String(text ?? id)}</a>`;
}

/** Members of a record but those that the page shows otherwise. */
export function facts(record: object, without: readonly string[] = []): Html {
  const rows = Object.entries(record)
    .filter(([name]) => !without.includes(name))
    .map(([name, value]) => html`<dt>${titleOf(name)}</dt><dd>${shown(value)}</dd>`);
  return html`<dl class="facts">${rows}</dl>`;
}

/** A card of a page. */
export function card(id: string, title: string, body: Html | readonly Html[]): Html {
  return html`<section class="card panel panel-alone" aria-labelledby="${id}"><h2 id="${id}">${title}</h2>${body}</section>`;
}

/** One search field or one field of a change. */
export interface Field {
  readonly name: string;
  readonly label: string;
  readonly value?: string | undefined;
  readonly hint?: string;
  readonly options?: readonly string[];
  readonly type?: 'text' | 'search' | 'date' | 'checkbox';
}

/** A field of one line. */
export const field = (name: string, label: string, hint?: string, value?: string): Field => {
  return { name, label, value, ...(hint !== undefined && { hint }) };
};

/** Why somebody makes a change. */
export const REASON: Field = { name: 'text.reason', label: 'Reason' };
const WRONG = html` aria-invalid="true" aria-describedby="rejection" autofocus`;

/** @param more attributes */
function input({ name, label, value = '', hint, options, type = 'text' }: Field, more = NOTHING): Html {
  if (type === 'checkbox')
    return html`<label class="field"><input type="checkbox" name="${name}" value="true"${value === 'true' ? html` checked` : NOTHING}${more}> ${label}</label>`;
  const help = hint === undefined || hint === '' ? NOTHING : html`<span class="soft"> ${hint}</span>`;
  if (options === undefined)
    return html`<label class="field">${label}${help}<input type="${type}" name="${name}" value="${value}"${more}></label>`;
  const choices = options.map(
    (option) =>
      html`<option value="${option}"${option === value ? html` selected` : NOTHING}>${option === '' ? 'any' : option}</option>`,
  );
  return html`<label class="field">${label}${help}<select name="${name}"${more}>${choices}</select></label>`;
}

/** The fields of a form; of one that was rejected as they were sent, below the error, which has the focus where no field is wrong. */
function inputs(fields: readonly Field[], rejected: ConsoleRequest['rejected']): Html {
  if (rejected === undefined) return html`${fields.map((field) => input(field))}`;
  const { values, error } = rejected;
  const names = fields.map(({ name }) => name);
  const wrong = faultyField(names, error);
  const focus = wrong === undefined ? html` tabindex="-1" autofocus` : NOTHING;
  const again = fields.map((field) =>
    input({ ...field, value: values.get(field.name) ?? '' }, field.name === wrong ? WRONG : NOTHING),
  );
  return html`<p class="alert" role="alert" id="rejection"${focus}>${error.message}</p>${again}`;
}

/**
 * A form that asks again: its fields keep the values of the address.
 * @param finds id of the part of the page that scripts replace while somebody types
 */
export function searchForm(
  { url, rejected }: ConsoleRequest,
  fields: readonly Field[],
  submit = 'Search',
  finds?: string,
): Html {
  const given = fields.map((field) => ({ ...field, value: url.searchParams.get(field.name) ?? field.value }));
  const shownAgain = rejected?.call === undefined ? rejected : undefined;
  const live = finds === undefined ? NOTHING : html` data-finds="${finds}"`;
  return html`<form class="fields" method="get" action="${url.pathname}" role="search" aria-label="${submit}"${live}>${inputs(given, shownAgain)}<button class="small">${submit}</button></form>`;
}

/** @param fields names and values */
export function hiddenFields(fields: readonly (readonly [string, string])[]): readonly Html[] {
  return fields.map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`);
}

export interface Action {
  readonly role: 'support' | 'admin';
  readonly params?: Readonly<Record<string, string>>;
  readonly fields?: readonly Field[];
  /** The record as it is shown: a change of another one is refused. */
  readonly record?: object;
  /** Names of members whose entries the form removes where they are missing: labels, limits. */
  readonly removes?: Readonly<Record<string, 'null' | 'tier'>>;
  /** For what cannot be undone: it is folded, and says so. */
  readonly warning?: string;
  readonly back: string;
}

/**
 * A form that changes something; nothing for an operator without the role. Names of fields say what they are: see form-body.ts.
 * @param route name of a route of the API
 */
export function actionForm(
  { operator, rejected }: Pick<ConsoleRequest, 'operator' | 'rejected'>,
  route: string,
  label: string,
  action: Action,
): Html {
  try {
    requireRole(operator, action.role);
  } catch {
    return NOTHING;
  }
  const { params = {}, fields = [], record, removes = {}, warning, back } = action;
  const isSame = ({ call }: NonNullable<typeof rejected>) =>
    call?.route === route && Object.entries(params).every(([name, value]) => call.params[name] === value);
  const shownAgain = rejected !== undefined && isSame(rejected) ? rejected : undefined;
  const shownFields = fields.filter(({ name }) => /^(?:null|list|map)\./.test(name));
  const ofRecord = [
    ['if_match', etagOf(record ?? {})],
    ...shownFields.map(({ name, value = '' }) => [`shown.${name}`, value] as const),
  ] as const;
  const hidden = [
    [CSRF_FIELD, operator.csrf ?? ''],
    ['request_key', randomUUID()],
    ['back', back],
    ...Object.entries(params).map(([name, value]) => [`param.${name}`, value] as const),
    ...Object.entries(removes).map(([name, removal]) => [`was.${name}.${removal}`, ''] as const),
    // As when the form was first shown, so that it does not take back what others have changed since.
    ...(record === undefined ? [] : ofRecord).map(
      ([name, value]) => [name, shownAgain?.values.get(name) ?? value] as const,
    ),
  ] as const;
  const danger = warning === undefined ? 'quiet small' : 'danger small';
  const form = html`<form class="fields" method="post" action="/console/do/${route}">${hiddenFields(hidden)}${inputs(fields, shownAgain)}<button class="${danger}">${label}</button></form>`;
  return warning === undefined
    ? form
    : html`<details${shownAgain === undefined ? NOTHING : html` open`}><summary>${label} …</summary><p>${warning}</p>${form}</details>`;
}

/** The link to the next page of a list. @param isPart whether the search ended before the page was full */
export function nextLink(url: URL, answer: object, isPart = false): Html {
  const cursor = member(answer, 'next_cursor');
  if (typeof cursor !== 'string') return NOTHING;
  const next = new URLSearchParams(url.searchParams);
  next.set('cursor', cursor);
  return html`<p><a href="${url.pathname}?${next.toString()}">${isPart ? 'Continue the search' : 'Next page'}</a></p>`;
}

/** When the data of a page was read. */
export function asOf(now: number): Html {
  return html`<p class="soft">As of ${new Date(now).toISOString().slice(0, 19).replace('T', ' ')} UTC.</p>`;
}

/** Bars of a number of each record, in the order of the table beside it. */
export function bars(title: string, records: readonly object[], name: string): Html {
  const values = records.map((record) => Number(member(record, name) ?? 0));
  const most = Math.max(...values, 0);
  if (records.length < 2 || most === 0) return NOTHING;
  const width = 100 / records.length;
  const rects = values.map((value, index) => {
    const height = (value / most) * 100;
    return html`<rect class="s0" x="${(index * width + width * 0.1).toFixed(3)}" y="${(100 - height).toFixed(3)}" width="${(width * 0.8).toFixed(3)}" height="${height.toFixed(3)}"/>`;
  });
  return html`<figure class="bars"><figcaption>${title}, at most ${shown(most)}</figcaption>
<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label="${title}: the numbers are in the table">${rects}</svg></figure>`;
}

/** Columns of a list of orders. */
export const ORDER_COLUMNS: readonly Column[] = [
  ['order', (record) => link('/console/orders', member(record, 'order'))],
  'tier',
  'state',
  'standing',
  'amount',
  'currency',
  'interval',
  'provider',
  'created_at',
  'paid_until',
];
