// Reads the forms of the console's pages into calls of the API. The name of a field says what its text is:
// `text.NAME` a text, left out where empty; `null.NAME` a text, null where empty; `list.NAME` words, null without any;
// `map.NAME` pairs `name=value`; words and values with spaces are in double quotes; `flag.NAME` a checkbox; `param.NAME` a parameter of the path.
// `shown.FIELD` is what the form showed in a field of the record: one that is still the same changes nothing. With `was.NAME.null` and
// `was.NAME.tier`, the names of a map that were shown and are gone get that value.
import { GatewayError } from '../../errors.ts';

export interface FormCall {
  readonly requestKey: string | undefined;
  readonly ifMatch: string | undefined;
  readonly params: Readonly<Record<string, string>>;
  readonly body: Readonly<Record<string, unknown>>;
}

/** @throws GatewayError `invalid_value` for a pair without `=`, or two of one name */
export function readFormCall(form: URLSearchParams): FormCall {
  const params = new Map<string, string>();
  const body = new Map<string, unknown>();
  const removals: (readonly [string, string])[] = [];
  const shownIn = (field: string) => form.get(`shown.${field}`)?.trim();
  for (const [field, given] of form) {
    const [kind = '', name = '', removal = ''] = field.split('.');
    const value = given.trim();
    if (shownIn(field) === value) continue;
    if (kind === 'param') params.set(name, value);
    else if (kind === 'was') removals.push([name, removal]);
    else if (kind === 'text' && value !== '') body.set(name, value);
    else if (kind === 'null') body.set(name, value === '' ? null : value);
    else if (kind === 'list') body.set(name, value === '' ? null : wordsOf(value));
    else if (kind === 'flag') body.set(name, true);
    else if (kind === 'map') body.set(name, mapOf(name, value));
  }
  for (const [name, removal] of removals) {
    const map = body.get(name);
    if (typeof map !== 'object' || map === null) continue;
    const names = Object.keys(mapOf(name, shownIn(`map.${name}`) ?? ''));
    const missing = names.filter((each) => !Object.hasOwn(map, each));
    const removed = Object.fromEntries(missing.map((each) => [each, removal === 'tier' ? 'tier' : null]));
    body.set(name, { ...map, ...removed });
  }
  return {
    requestKey: form.get('request_key') ?? undefined,
    ifMatch: form.get('if_match') ?? undefined,
    params: Object.fromEntries(params),
    body: Object.fromEntries(body),
  };
}

/** The page that a form was on: nothing but a page of the console. */
export function backOf(form: URLSearchParams): string {
  const back = form.get('back') ?? '';
  // What `encodeURIComponent` leaves as it is.
  return /^\/console(?:\/[\w%.~!'()*-]+)*$/.test(back) ? back : '/console';
}

/** A word of a list, or the value of a pair, as a field shows it: in double quotes where it would be several words. */
export function quotedWord(text: string): string {
  return text === '' || /[\s,"\\]/.test(text) ? `"${text.replaceAll(/["\\]/g, '\\$&')}"` : text;
}

function wordsOf(text: string): readonly string[] {
  const words = text.match(/(?:"(?:[^"\\]|\\.){0,500}"|[^\s,])+/g) ?? [];
  return words.map((word) =>
    word.replaceAll(/"((?:[^"\\]|\\.){0,500})"/g, (_, quoted: string) => quoted.replaceAll(/\\(.)/g, '$1')),
  );
}

function mapOf(name: string, text: string): Readonly<Record<string, string | number>> {
  const map = new Map<string, string | number>();
  for (const pair of wordsOf(text)) {
    const [key, value] = pairOf(name, pair);
    if (map.has(key)) throw new GatewayError('invalid_value', `${name}: ${key} is given twice.`);
    map.set(key, value);
  }
  return Object.fromEntries(map);
}

function pairOf(name: string, pair: string): readonly [string, string | number] {
  const at = pair.indexOf('=');
  if (at < 1 || pair.startsWith('__proto__='))
    throw new GatewayError('invalid_value', `${name}: write NAME=VALUE, separated by spaces.`);
  const value = pair.slice(at + 1);
  return [pair.slice(0, at), name !== 'labels' && /^\d+(?:\.\d+)?$/.test(value) ? Number(value) : value];
}
