// Compares what a client handed to its user with and without the gateway, field by field. Values that every request has
// of its own (ids, also within texts, times, fingerprints) are equal when they correspond; everything else is equal when it is
// the same.
import type { CallResult } from './types.ts';

/** A place where the two results are not equal. `undefined` means that the field is missing. */
export interface Difference {
  readonly call: string;
  /** Such as `result.choices[0].message.content`. */
  readonly path: string;
  readonly direct: unknown;
  readonly through: unknown;
}

/** Fields that name an id: `id`, `item_id`, `responseId`, `x-request-id`. */
const ID = /(?:^|[_-])id$|[a-z]I[dD]$|^ID$/;
/** The id of the request itself: the gateway gives each request one of its own, so its form may differ. */
const REQUEST_ID = /request[_-]?id$/i;
/** An id within a text, such as a message of an error: `text part msg_7MoPuqZJUQtlcxgo not found`. */
export const ID_IN_TEXT = /\b[a-z]{2,12}[-_](?=[A-Za-z]*\d)[A-Za-z0-9]{16,}\b/g;
/** Fields that hold a time: Unix seconds or milliseconds, or a date as text. */
const TIME = /^(?:created|timestamp|date)$|_at$|[a-z]At$/;
/** Fields that hold what is drawn anew for each answer. */
const DRAWN = /^(?:system_?fingerprint|obfuscation)$/i;
/** Fields that hold how long something took. */
const DURATION = /_ms$|(?:Ms|_per_second)$|^(?:openai-)?processing-ms$/;

/** Two times of one comparison are at most this far apart. */
const TIME_SECONDS = 900;

/** All differences of one call. */
export function differences(direct: CallResult, through: CallResult): Difference[] {
  const comparison = new Comparison(direct.call);
  // The first time learns which ids correspond: libraries also use them as names of fields.
  for (let pass = 0; pass < 2; pass++) {
    comparison.found.length = 0;
    comparison.compare('result', 'result', direct.result, through.result);
    comparison.compare('error', 'error', direct.error, through.error);
  }
  return comparison.found;
}

class Comparison {
  readonly found: Difference[] = [];
  readonly #call: string;
  readonly #throughOf = new Map<string, string>();
  readonly #directOf = new Map<string, string>();

  constructor(call: string) {
    this.#call = call;
  }

  compare(path: string, field: string, direct: unknown, through: unknown): void {
    if (Object.is(direct, through)) return;
    if (Array.isArray(direct) && Array.isArray(through)) this.#compareArrays(path, field, direct, through);
    else if (isObject(direct) && isObject(through)) this.#compareObjects(path, direct, through);
    else if (!this.#correspond(field, direct, through)) this.#add(path, direct, through);
  }

  #compareArrays(path: string, field: string, direct: unknown[], through: unknown[]): void {
    if (direct.length !== through.length) this.#add(`${path}.length`, direct.length, through.length);
    const length = Math.min(direct.length, through.length);
    for (let index = 0; index < length; index++)
      this.compare(`${path}[${index}]`, field, direct[index], through[index]);
  }

  #compareObjects(path: string, direct: Fields, through: Fields): void {
    for (const field of Object.keys(direct)) {
      const other = Object.hasOwn(through, field) ? field : (this.#throughOf.get(field) ?? field);
      this.compare(`${path}.${field}`, field, direct[field], through[other]);
    }
    for (const field of Object.keys(through)) {
      const other = this.#directOf.get(field) ?? field;
      if (!Object.hasOwn(direct, field) && !Object.hasOwn(direct, other))
        this.compare(`${path}.${field}`, field, undefined, through[field]);
    }
  }

  #correspond(field: string, direct: unknown, through: unknown): boolean {
    if (typeof direct !== typeof through) return false;
    if (isFilled(direct) && this.#throughOf.get(direct) === through) return true;
    if (REQUEST_ID.test(field)) return isFilled(direct) && isFilled(through);
    if (ID.test(field)) return this.#sameIdentity(direct, through);
    if (TIME.test(field)) return Math.abs(seconds(direct) - seconds(through)) < TIME_SECONDS;
    if (DURATION.test(field)) return typeof direct === 'number' || typeof direct === 'string';
    if (!isFilled(direct) || !isFilled(through)) return false;
    return DRAWN.test(field) || this.#sameText(direct, through);
  }

  /** Texts that are the same but for ids that correspond. */
  #sameText(direct: string, through: string): boolean {
    if (direct.replace(ID_IN_TEXT, '') !== through.replace(ID_IN_TEXT, '')) return false;
    const others = through.match(ID_IN_TEXT) ?? [];
    const ids = direct.match(ID_IN_TEXT) ?? [];
    return ids.length === others.length && ids.every((id, index) => this.#sameIdentity(id, others[index]));
  }

  /** Ids correspond one to one: an id that repeats on one side repeats on the other. */
  #sameIdentity(direct: unknown, through: unknown): boolean {
    if (!isFilled(direct) || !isFilled(through) || prefixOf(direct) !== prefixOf(through)) return false;
    const known = this.#throughOf.get(direct);
    if (known !== undefined || this.#directOf.has(through)) return known === through;
    this.#throughOf.set(direct, through);
    this.#directOf.set(through, direct);
    return true;
  }

  #add(path: string, direct: unknown, through: unknown): void {
    this.found.push({ call: this.#call, path, direct, through });
  }
}

type Fields = { readonly [field: string]: unknown };

function isObject(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isFilled(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

/** `chatcmpl-` of `chatcmpl-abc`: the kind of an id is no accident. */
function prefixOf(id: string): string {
  return /^[a-z]{2,12}[-_]/.exec(id)?.[0] ?? '';
}

function seconds(value: unknown): number {
  if (typeof value === 'string') return Date.parse(value) / 1000;
  if (typeof value !== 'number') return Number.NaN;
  return value > 1e11 ? value / 1000 : value;
}
