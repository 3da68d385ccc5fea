// Reads the forms of the console's pages into calls of the API. The name of a field says what its text is:
// `text.NAME` a text, left out where empty; `null.NAME` a text, null where empty; `list.NAME` words, null without any;
// `map.NAME` pairs `name=value`; `flag.NAME` a checkbox; `param.NAME` a parameter of the path.
// `was.NAME.null` and `was.NAME.tier` have the names of a map that the form showed: those that are gone get that value.
import { GatewayError } from '../../errors.ts';

export interface FormCall {
  readonly requestKey: string | undefined;
  readonly ifMatch: string | undefined;
  /** Page that the form was on. */
  readonly back: string;
  readonly params: Readonly<Record<string, string>>;
  readonly body: Readonly<Record<string, unknown>>;
}

/** @throws GatewayError `invalid_value` for a pair without `=` */
export function readFormCall(form: URLSearchParams): FormCall {
  const params: Record<string, string> = {};
  const body: Record<string, unknown> = {};
  const gone: (readonly [string, string, string])[] = [];
  for (const [field, given] of form) {
    const [kind = '', name = '', removal = ''] = field.split('.');
    const value = given.trim();
    if (kind === 'param') params[name] = value;
    else if (kind === 'was') gone.push([name, removal, value]);
    else if (kind === 'text' && value !== '') body[name] = value;
    else if (kind === 'null') body[name] = value === '' ? null : value;
    else if (kind === 'list') body[name] = value === '' ? null : wordsOf(value);
    else if (kind === 'flag') body[name] = true;
    else if (kind === 'map')
      body[name] = Object.fromEntries(wordsOf(value).map((pair) => pairOf(name, pair)));
  }
  for (const [name, removal, names] of gone) {
    const map = body[name];
    if (typeof map !== 'object' || map === null) continue;
    const missing = names.split(',').filter((each) => each !== '' && !Object.hasOwn(map, each));
    body[name] = {
      ...map,
      ...Object.fromEntries(missing.map((each) => [each, removal === 'tier' ? 'tier' : null])),
    };
  }
  const back = form.get('back') ?? '';
  return {
    requestKey: form.get('request_key') ?? undefined,
    ifMatch: form.get('if_match') ?? undefined,
    // Nothing but a page of the console.
    back: /^\/console(?:\/[\w%.~-]+)*$/.test(back) ? back : '/console',
    ...{ params, body },
  };
}

function wordsOf(text: string): readonly string[] {
  return text.split(/[\s,]+/).filter((word) => word !== '');
}

function pairOf(name: string, pair: string): readonly [string, string | number] {
  const at = pair.indexOf('=');
  if (at < 1) throw new GatewayError('invalid_value', `${name}: write NAME=VALUE, separated by spaces.`);
  const value = pair.slice(at + 1);
  return [pair.slice(0, at), name !== 'labels' && /^\d+(?:\.\d+)?$/.test(value) ? Number(value) : value];
}
