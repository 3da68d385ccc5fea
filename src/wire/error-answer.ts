// Reads an upstream's error answer in any shape: its message, its code, and the status that it names.

export interface ErrorAnswer {
  /** For the client: the upstream's own bytes if they have OpenAI's shape, else a new object with its message. */
  readonly body: Buffer | undefined;
  readonly message: string;
  /** `code` and `type`, in lower case. */
  readonly words: readonly string[];
  /** `words`, and other names of what went wrong, those of another vendor's error within this one too. In lower case. */
  readonly names: readonly string[];
  /** `message`, and the text of another vendor's error within this one. */
  readonly texts: readonly string[];
  /** The status from 400 to 599 that it names. */
  readonly status: number | undefined;
}

/** Names of error types. */
const ERROR_WORD = /error|exception|fail/i;
/** Members with the message of an error. */
const TEXTS = [
  'message',
  'msg',
  'detail',
  'errors',
  'error_msg',
  'error_message',
  'errorMessage',
  'Message',
  'faultstring',
  'status_msg',
  '__type',
  'error_description',
  // Of problem details (RFC 9457), where nothing says more.
  'title',
] as const;
/** Those that answers do not have. */
const ERROR_TEXTS = ['detail', 'errors', 'error_msg', 'error_message', 'errorMessage'] as const;
/** Members, besides `code` and `type`, with the name of what went wrong: Google's, Amazon's and OpenRouter's. */
const NAMES = ['status', 'reason', 'code', '__type', 'error_type', 'provider_code'] as const;
/** Of errors that quote another vendor's error. */
const MAX_DEPTH = 2;
/** Maximum nesting of messages, such as `message.detail[0].msg`. */
const MAX_LEVEL = 4;

/**
 * Whether an object is an error without OpenAI's wrapper, the member `error`. Call it only for objects without an answer (choices,
 * output, data).
 * @param isWhole whether it is the whole answer; an event of a stream with only a message may be a notice
 */
export function isErrorObject(value: unknown, isWhole: boolean): boolean {
  const named = ['object', 'type', 'status'].map((name) => memberOf(value, name));
  if (named.some((name) => typeof name === 'string' && /^(?:error|failed|failure)$/i.test(name))) return true;
  if (statusIn(value) !== undefined) return true;
  if (ERROR_TEXTS.some((name) => textIn(memberOf(value, name)) !== '')) return true;
  if (wrapped(value).some((inner) => textIn(inner) !== '')) return true;
  if (['message', 'msg', 'Message'].every((name) => textIn(memberOf(value, name)) === '')) return false;
  const code = memberOf(value, 'code');
  const type = memberOf(value, 'type');
  return (
    (typeof code === 'string' && code !== '') ||
    (typeof code === 'number' && code !== 0 && code !== 200) ||
    (typeof type === 'string' && ERROR_WORD.test(type)) ||
    memberOf(value, 'success') === false ||
    (isWhole && memberOf(value, 'id') === undefined)
  );
}

/**
 * Reads OpenAI's error object and the other known forms: text in `error`, a flat object, an array of one, a nested object, lists of
 * details, and any of these as an event of a stream.
 * @param status of the answer, which determines the type of a new error object
 * @param depth of an error within the text of another
 */
export function readErrorAnswer(status: number, bytes: Buffer, depth = 0): ErrorAnswer {
  // Servers on .NET begin their errors with a byte order mark.
  const text = bytes.toString().replace(/^\uFEFF/, '');
  const whole = parse(text);
  const json = whole === undefined ? eventData(text) : text;
  const parsed = whole ?? parse(json);
  const outer = Array.isArray(parsed) ? parsed[0] : parsed;
  const error = memberOf(outer, 'error') || errorOfChoice(outer);
  const levels = [memberOf(error, 'error'), error, outer, ...wrapped(outer)];
  const found = levels.map((level) => textIn(level)).filter((each) => each !== '');
  // Where `error` is the name of the status, the text beside it says what is wrong: Spring, NestJS, OAuth.
  const isPair = typeof error === 'string' && found.length > 1 && found[0] !== found[1];
  const message = isPair ? `${found[0]}: ${found[1]}` : found[0];
  const isShaped = typeof memberOf(memberOf(parsed, 'error'), 'message') === 'string';
  const own = whole === undefined ? Buffer.from(json) : bytes;
  const words = namesOf(levels, ['code', 'type']);
  // OpenRouter quotes its vendor's answer in `raw`, Ollama and Google's endpoint in the text.
  const metadata = memberOf(error, 'metadata');
  const said = isPair ? found.slice(0, 2) : [message];
  const quoted = [...said, memberOf(metadata, 'raw')].filter((each) => typeof each === 'string');
  const inner =
    depth === MAX_DEPTH
      ? []
      : quoted
          .filter((each) => /^\s*[[{]/.test(each))
          .map((each) => readErrorAnswer(status, Buffer.from(each), depth + 1));
  const within = [
    memberOf(error, 'innererror'),
    metadata,
    ...['details', 'errors'].flatMap((name) => memberOf(error, name)),
  ];
  return {
    body: isShaped ? own : message === undefined ? undefined : errorBody(status, message),
    message: message ?? '',
    words,
    names: [...words, ...namesOf([...levels, ...within], NAMES), ...inner.flatMap(({ names }) => names)],
    texts: [...quoted, ...inner.flatMap(({ texts }) => texts)],
    status: levels.map(statusIn).find((found) => found !== undefined),
  };
}

function namesOf(levels: readonly unknown[], members: readonly string[]): string[] {
  return levels
    .flatMap((level) => members.map((name) => memberOf(level, name)))
    .filter((name) => typeof name === 'string')
    .map((name) => name.toLowerCase());
}

/** Wrappers of Apigee (`fault`), MiniMax (`base_resp`, with a status of 0 in answers that are no errors) and AWS (`Output`, for an unknown path). */
function wrapped(value: unknown): unknown[] {
  const base = memberOf(value, 'base_resp');
  const output = memberOf(value, 'Output');
  return [
    memberOf(value, 'fault'),
    memberOf(base, 'status_code') === 0 ? undefined : base,
    memberOf(output, '__type') === undefined ? undefined : output,
  ];
}

/** OpenRouter's error in a choice of an answer. */
function errorOfChoice(answer: unknown): unknown {
  const choices = memberOf(answer, 'choices');
  return Array.isArray(choices)
    ? choices.map((choice) => memberOf(choice, 'error')).find(Boolean)
    : undefined;
}

/** The data of the first event with data (WHATWG HTML, 9.2.6). */
export function eventData(text: string): string {
  const [event = ''] = text.split(/\r\n\r\n|\n\n|\r\r/).filter((each) => /^data:/m.test(each));
  const lines = event.split(/\r\n|\n|\r/).filter((line) => line.startsWith('data:'));
  return lines
    .map((line) => line.slice('data:'.length))
    .join('\n')
    .trim();
}

function errorBody(status: number, message: string): Buffer {
  const type = status < 500 ? 'invalid_request_error' : 'server_error';
  return Buffer.from(JSON.stringify({ error: { message, type, param: null, code: null } }));
}

function statusIn(level: unknown): number | undefined {
  for (const name of ['status', 'code', 'status_code']) {
    const value = memberOf(level, name);
    const status = typeof value === 'string' && /^\d{3}$/.test(value) ? Number(value) : value;
    if (typeof status === 'number' && Number.isInteger(status) && status >= 400 && status <= 599)
      return status;
  }
  return undefined;
}

/** The message in a text, an object or a list, the first that is found: `{"detail":[{"loc":["body","n"],"msg":"..."}]}`. */
function textIn(value: unknown, level = 0): string {
  if (typeof value === 'string') return value;
  if (level >= MAX_LEVEL || typeof value !== 'object') return '';
  if (Array.isArray(value)) {
    return value
      .map((each) => textIn(each, level + 1))
      .filter((text) => text !== '')
      .join('; ');
  }
  let text = '';
  for (const name of TEXTS) {
    const member = memberOf(value, name);
    text = textIn(member, level + 1) || (name === 'errors' ? textsByField(member, level + 1) : '');
    if (text !== '') break;
  }
  const place = memberOf(value, 'loc');
  return text !== '' && Array.isArray(place) ? `${place.join('.')}: ${text}` : text;
}

/** The messages in an object with a list for each field of the request, as ASP.NET, Laravel and Rails write it. */
function textsByField(value: unknown, level: number): string {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return '';
  return Object.entries(value)
    .map(([field, each]) => [field, textIn(each, level)])
    .filter(([, text]) => text !== '')
    .map((pair) => pair.join(': '))
    .join('; ');
}

/** An own member of any value; undefined if there is none. */
export function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? Reflect.get(value, name)
    : undefined;
}

/** The parsed text; undefined if it is not JSON. */
export function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
